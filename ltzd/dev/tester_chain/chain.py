"""The tester chain: ledger, pool, clock and EVM as one thing that callers change and read.

Everything but execution happens on the event loop. Whatever moves the head holds one lock; sending
a transaction does not wait for it. `head_changed` and `pooled` tell listeners, on the loop, before
the caller hears.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from ltzd.dev.tester_chain.block import Block
from ltzd.dev.tester_chain.clock import ChainClock
from ltzd.dev.tester_chain.errors import refused
from ltzd.dev.tester_chain.evm import BLOCK_GAS_LIMIT, Evm, Outcome
from ltzd.dev.tester_chain.fees import next_base_fee
from ltzd.dev.tester_chain.filling import Plan
from ltzd.dev.tester_chain.ledger import HeadChange, Ledger
from ltzd.dev.tester_chain.pool import Pool
from ltzd.dev.tester_chain.state import State
from ltzd.dev.tester_chain.transaction import Transaction, Unsigned
from ltzd.dev.tester_chain.worker import Worker
from ltzd.values import Address, Hash32

_CANDIDATES_AT_MOST = BLOCK_GAS_LIMIT // 21_000
_READERS = 2


@dataclass(frozen=True)
class Snapshot:
    head: Block
    state_root: Hash32
    offset_seconds: int


class Chain:
    def __init__(self, chain_id: int) -> None:
        self.chain_id = chain_id
        self.evm = Evm(chain_id)
        self.ledger = Ledger(self.evm.genesis)
        self.pool = Pool(chain_id, BLOCK_GAS_LIMIT)
        self.clock = ChainClock()
        self.impersonated: set[Address] = set()
        self.impersonates_all = False
        self.work = asyncio.Event()
        """Set when something may have become executable."""
        self.head_changed: list[Callable[[HeadChange], None]] = []
        self.pooled: list[Callable[[Transaction], None]] = []
        self._head_lock = asyncio.Lock()
        self._builder = Worker("builder")
        self._readers = Worker("reader", _READERS)
        self._head_state: tuple[Block, Hash32, State] | None = None
        self._snapshots: dict[int, Snapshot] = {}
        self._snapshots_made = 0
        self._base_fee_set: int | None = None

    def close(self) -> None:
        self.evm.closing.set()
        self._builder.stop()
        self._readers.stop()

    # Reading

    def state(self, block: Block) -> State:
        """The state after `block`, for the event loop alone; the head's is kept for reuse."""
        if block is not self.ledger.head:
            return self.evm.state_after(block)
        kept = self._head_state
        if kept is None or kept[0] is not block or kept[1] != block.state_root:
            kept = (block, block.state_root, self.evm.state_after(block))
            self._head_state = kept
        return kept[2]

    def nonce_of(self, address: Address) -> int:
        return self.state(self.ledger.head).nonce(address)

    def next_nonce(self, address: Address) -> int:
        """The first nonce that neither the chain nor the pool has taken."""
        return self.pool.next_nonce(address, self.nonce_of(address))

    def base_fee(self) -> int:
        """Of the next block."""
        if self._base_fee_set is not None:
            return self._base_fee_set
        return next_base_fee(self.ledger.head.header)

    def executable(self) -> list[Transaction]:
        waiting = self.pool.executable(self.nonce_of, self.base_fee())
        return list(islice(waiting, _CANDIDATES_AT_MOST))

    async def call(
        self, block: Block, said: Unsigned, sender: Address, *, pending: bool = False
    ) -> Outcome:
        """Run code after `block`, or inside the block that would follow it."""
        at = self.clock.next_timestamp(block.timestamp) if pending else None
        return await self._readers.run(partial(self.evm.call, block, said, sender, at))

    # Sending

    def send(self, one: Transaction) -> Hash32:
        """Into the pool, at once. Raises RpcError."""
        state = self.state(self.ledger.head)
        self.pool.add(one, state.nonce(one.sender), state.balance(one.sender))
        for hear in self.pooled:
            hear(one)
        self.work.set()
        return one.hash

    def can_pretend(self, sender: Address) -> bool:
        return self.impersonates_all or sender in self.impersonated

    # Mining

    async def mine(
        self, *, even_empty: bool, seconds_at_most: float = float("inf")
    ) -> Block | None:
        """One block from the pool; None where it would hold nothing and nothing was not asked."""
        async with self._head_lock:
            head = self.ledger.head
            plan = Plan(
                head,
                self.clock.next_timestamp(head.timestamp),
                self.base_fee(),
                self.executable(),
                seconds_at_most,
            )
            if not plan.transactions and not even_empty:
                return None
            built = await self._builder.run(partial(self.evm.build, plan))
            self.pool.forget(built.dropped)
            if not built.block.transactions and not even_empty:
                self.work.set()
                return None
            self.clock.mined()
            self._base_fee_set = None
            self._become(built.block)
            return built.block

    # Going back

    async def rollback(self, depth: int) -> None:
        async with self._head_lock:
            self._become(self.ancestor(depth, "Rollback"))

    async def reorg(self, depth: int, replacements: Sequence[Sequence[Transaction]]) -> None:
        """Replace the last `depth` blocks by as many others; readers see the change at once."""
        async with self._head_lock:
            tip = self.ancestor(depth, "Reorg")
            for height in range(depth):
                plan = Plan(
                    tip,
                    self.clock.next_timestamp(tip.timestamp),
                    next_base_fee(tip.header),
                    replacements[height] if height < len(replacements) else (),
                )
                tip = (await self._builder.run(partial(self.evm.build, plan))).block
            self._become(tip)

    def snapshot(self) -> int:
        number = self._snapshots_made
        self._snapshots_made += 1
        head = self.ledger.head
        self._snapshots[number] = Snapshot(head, head.state_root, self.clock.offset_seconds)
        return number

    async def revert(self, number: int) -> bool:
        """Back to a snapshot, which is used up as are all later ones."""
        async with self._head_lock:
            snapshot = self._snapshots.get(number)
            if snapshot is None:
                return False
            self._snapshots = {old: kept for old, kept in self._snapshots.items() if old < number}
            snapshot.head.state_root = snapshot.state_root
            self.clock.offset_seconds = snapshot.offset_seconds
            self._become(snapshot.head)
            return True

    # By decree

    async def decree(self, change: Callable[[State], None]) -> None:
        """Change the state after the head without a transaction."""
        async with self._head_lock:
            head = self.ledger.head
            head.state_root = await self._builder.run(partial(self.evm.decree, head, change))
            self.work.set()

    def set_next_base_fee(self, wei_per_gas: int) -> None:
        self._base_fee_set = wei_per_gas
        self.work.set()

    def ancestor(self, depth: int, what: str) -> Block:
        height = self.ledger.head.number
        block = self.ledger.at(height - depth)
        if block is None:
            raise refused(
                f"{what} depth must not exceed current chain height: "
                f"current height {height}, depth {depth}"
            )
        return block

    def _become(self, head: Block) -> None:
        change = self.ledger.set_head(head)
        for block in change.added:
            for one in block.transactions:
                self.pool.forget_below(one.sender, one.nonce + 1)
        for hear in self.head_changed:
            hear(change)
        self.work.set()
