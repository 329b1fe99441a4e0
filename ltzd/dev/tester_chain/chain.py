"""The tester chain: block tree, pool, clock and EVM behind one interface.

Execution runs in worker threads; everything else runs on the event loop. Every change of the head
holds one lock, which sending a transaction does not take. The callbacks in `head_changed` and
`transaction_pooled` run on the loop before the change's caller continues.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

import msgspec

from ltzd.concurrency.clock import loop_time
from ltzd.dev.tester_chain.block_tree import BlockTree, HeadChange
from ltzd.dev.tester_chain.clock import ChainClock
from ltzd.dev.tester_chain.errors import refused
from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.dev.tester_chain.execution.block_builder import BlockPlan
from ltzd.dev.tester_chain.execution.evm import BLOCK_GAS_LIMIT, CallOutcome, Evm
from ltzd.dev.tester_chain.execution.fees import next_base_fee
from ltzd.dev.tester_chain.execution.overrides import NO_OVERRIDES, Overrides
from ltzd.dev.tester_chain.execution.simulation import PlannedBlock, SimulatedBlock
from ltzd.dev.tester_chain.execution.state import EvmState
from ltzd.dev.tester_chain.execution.transaction import EvmTransaction, TransactionFields
from ltzd.dev.tester_chain.pending import PendingBlocks
from ltzd.dev.tester_chain.pool import TransactionPool
from ltzd.dev.tester_chain.worker import WorkerThreads
from ltzd.values import ZERO_ADDRESS, Address, Hash32

_CANDIDATES_AT_MOST = BLOCK_GAS_LIMIT // 21_000
_READERS = 2


class ChainSnapshot(msgspec.Struct, frozen=True):
    head: MinedBlock
    state_root: Hash32
    offset_seconds: int


class TesterChain:
    def __init__(self, chain_id: int) -> None:
        self.chain_id = chain_id
        self.evm = Evm(chain_id)
        self.block_tree = BlockTree(self.evm.genesis)
        self.pool = TransactionPool(chain_id, BLOCK_GAS_LIMIT)
        self.clock = ChainClock()
        self.coinbase = ZERO_ADDRESS
        self.impersonated: set[Address] = set()
        self.impersonates_all = False
        self.work = asyncio.Event()
        """Set when a transaction may have become executable."""
        self.head_changed: list[Callable[[HeadChange], None]] = []
        self.transaction_pooled: list[Callable[[EvmTransaction], None]] = []
        self._head_lock = asyncio.Lock()
        self._builder = WorkerThreads("builder")
        self._readers = WorkerThreads("reader", _READERS)
        self._head_state: tuple[MinedBlock, Hash32, EvmState] | None = None
        self._snapshots: dict[int, ChainSnapshot] = {}
        self._snapshots_made = 0
        self._base_fee_set: int | None = None
        self._pending = PendingBlocks(self.evm, self.pool, self._readers, self._next_plan)

    def close(self) -> None:
        self.evm.closing.set()
        self._builder.stop()
        self._readers.stop()

    # Reads

    def state(self, block: MinedBlock) -> EvmState:
        """The state after `block`, for use on the event loop only; the head's state is cached."""
        if block is not self.block_tree.head:
            return self.evm.state_after(block)
        cached = self._head_state
        if cached is None or cached[0] is not block or cached[1] != block.state_root:
            cached = (block, block.state_root, self.evm.state_after(block))
            self._head_state = cached
        return cached[2]

    def assumed_state(self, block: MinedBlock, overrides: Overrides) -> EvmState:
        """The state after `block` as a call with these overrides finds it."""
        if not overrides.accounts:
            return self.state(block)
        state = self.evm.state_after(block)
        overrides.apply(state)
        return state

    def nonce_of(self, address: Address) -> int:
        return self.state(self.block_tree.head).nonce(address)

    def next_nonce(self, address: Address) -> int:
        """The first nonce that is used neither on the chain nor in the pool."""
        return self.pool.next_nonce(address, self.nonce_of(address))

    def base_fee(self) -> int:
        """The base fee of the next block, in wei per gas."""
        if self._base_fee_set is not None:
            return self._base_fee_set
        return next_base_fee(self.block_tree.head.header)

    async def call(
        self,
        block: MinedBlock,
        request: TransactionFields,
        sender: Address,
        overrides: Overrides = NO_OVERRIDES,
    ) -> CallOutcome:
        """Execute a call after the transactions of `block`, as part of it."""
        return await self._readers.run(partial(self.evm.call, block, request, sender, overrides))

    async def pending_block(self) -> MinedBlock:
        """The block that would be mined now, with as much of the pool as executes in time."""
        return await self._pending.block()

    async def simulate(
        self, parent: MinedBlock, planned: Sequence[PlannedBlock]
    ) -> list[SimulatedBlock]:
        return await self._readers.run(partial(self.evm.simulate, parent, planned))

    # Sending

    def send(self, transaction: EvmTransaction) -> Hash32:
        """Add a transaction to the pool. Raises JsonRpcError."""
        state = self.state(self.block_tree.head)
        nonce, balance = state.nonce(transaction.sender), state.balance(transaction.sender)
        self.pool.add(transaction, nonce, balance, self.base_fee(), loop_time())
        for callback in self.transaction_pooled:
            callback(transaction)
        self.work.set()
        return transaction.hash

    def can_impersonate(self, sender: Address) -> bool:
        return self.impersonates_all or sender in self.impersonated

    # Mining

    async def mine(
        self, *, even_empty: bool, seconds_at_most: float = float("inf")
    ) -> MinedBlock | None:
        """Mine one block from the pool; returns None for an empty one unless `even_empty`."""
        async with self._head_lock:
            plan = self._next_plan(seconds_at_most)
            if not plan.transactions and not even_empty:
                return None
            built = await self._builder.run(partial(self.evm.build, plan))
            self.pool.forget(built.dropped)
            if not built.block.transactions and not even_empty:
                self.work.set()
                return None
            self.clock.mined()
            self._base_fee_set = None
            self._set_head(built.block)
            self.pool.expire(loop_time(), self.nonce_of, self.base_fee())
            return built.block

    # Rollbacks and reorgs

    async def rollback(self, depth: int) -> None:
        async with self._head_lock:
            self._set_head(self.ancestor(depth, "Rollback"))

    async def reorg(self, depth: int, replacements: Sequence[Sequence[EvmTransaction]]) -> None:
        """Replace the last `depth` blocks by as many new ones in one change of the head."""
        async with self._head_lock:
            tip = self.ancestor(depth, "Reorg")
            for height in range(depth):
                transactions = replacements[height] if height < len(replacements) else ()
                plan = self._plan(tip, next_base_fee(tip.header), transactions)
                tip = (await self._builder.run(partial(self.evm.build, plan))).block
            self._set_head(tip)

    def snapshot(self) -> int:
        number = self._snapshots_made
        self._snapshots_made += 1
        head = self.block_tree.head
        self._snapshots[number] = ChainSnapshot(head, head.state_root, self.clock.offset_seconds)
        return number

    async def revert(self, number: int) -> bool:
        """Return to a snapshot and delete it and all later ones; False for an unknown number."""
        async with self._head_lock:
            snapshot = self._snapshots.get(number)
            if snapshot is None:
                return False
            self._snapshots = {key: kept for key, kept in self._snapshots.items() if key < number}
            snapshot.head.state_root = snapshot.state_root
            self.clock.restore_offset(snapshot.offset_seconds)
            self._set_head(snapshot.head)
            return True

    async def reset(self) -> None:
        """Return to genesis, as a new chain would begin; the genesis hash stays."""
        async with self._head_lock:
            genesis = self.block_tree.chain[0]
            genesis.state_root = Hash32(genesis.header.state_root)
            self.clock.reset()
            self.pool.clear()
            self.impersonated.clear()
            self.impersonates_all = False
            self._snapshots, self._base_fee_set = {}, None
            self._set_head(genesis)

    # Changes without a transaction

    async def change_state(self, change: Callable[[EvmState], None]) -> None:
        """Change the state after the head without a transaction, as anvil's cheat codes do."""
        async with self._head_lock:
            head = self.block_tree.head
            head.state_root = await self._builder.run(partial(self.evm.change_state, head, change))
            self.work.set()

    def set_next_base_fee(self, wei_per_gas: int) -> None:
        self._base_fee_set = wei_per_gas
        self.work.set()

    def set_gas_limit(self, gas: int) -> None:
        """Set the gas limit of the blocks from the next one on."""
        self.pool.gas_limit = gas
        self.work.set()

    def ancestor(self, depth: int, operation: str) -> MinedBlock:
        height = self.block_tree.head.number
        block = self.block_tree.at(height - depth)
        if block is None:
            raise refused(
                f"{operation} depth must not exceed current chain height: "
                f"current height {height}, depth {depth}"
            )
        return block

    def _next_plan(self, seconds_at_most: float) -> BlockPlan:
        waiting = self.pool.executable(self.nonce_of, self.base_fee())
        transactions = list(islice(waiting, _CANDIDATES_AT_MOST))
        return self._plan(self.block_tree.head, self.base_fee(), transactions, seconds_at_most)

    def _plan(
        self,
        parent: MinedBlock,
        base_fee: int,
        transactions: Sequence[EvmTransaction],
        seconds_at_most: float = float("inf"),
    ) -> BlockPlan:
        return BlockPlan(
            parent,
            self.clock.next_timestamp(parent.timestamp),
            base_fee,
            self.coinbase,
            self.pool.gas_limit,
            transactions,
            seconds_at_most,
        )

    def _set_head(self, head: MinedBlock) -> None:
        change = self.block_tree.set_head(head)
        for block in change.added:
            for transaction in block.transactions:
                self.pool.forget_below(transaction.sender, transaction.nonce + 1)
        for callback in self.head_changed:
            callback(change)
        self.work.set()
