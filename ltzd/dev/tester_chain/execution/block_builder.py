"""Builds one block: chooses among the candidates, executes them, and seals the header."""

import os
import time
from collections.abc import Callable, Sequence

import msgspec
from eth.abc import ComputationAPI
from eth.exceptions import VMError
from eth.vm.forks.prague.blocks import PragueBlockHeader
from eth_utils.exceptions import ValidationError
from msgspec.structs import replace

from ltzd.dev.tester_chain.execution.block import Header, MinedBlock, MinedLog, MinedReceipt
from ltzd.dev.tester_chain.execution.ordered_trie import ordered_root
from ltzd.dev.tester_chain.execution.state import EvmState, Execution, created_address
from ltzd.dev.tester_chain.execution.transaction import EvmTransaction
from ltzd.values import Address, Hash32


class BlockPlan(msgspec.Struct, frozen=True):
    """A block to build; `transactions` are candidates in order, each sender's in nonce order."""

    parent: MinedBlock
    timestamp: int
    base_fee: int
    coinbase: Address
    gas_limit: int
    transactions: Sequence[EvmTransaction]
    seconds_at_most: float = float("inf")


class BuiltBlock(msgspec.Struct, frozen=True):
    block: MinedBlock
    dropped: tuple[EvmTransaction, ...]
    """Candidates that cannot be mined in this or any later block."""


class UnrunnableError(Exception):
    def __init__(self, transaction: EvmTransaction) -> None:
        super().__init__(transaction.hash.hex())
        self.transaction = transaction


def build(
    plan: BlockPlan, state_for: Callable[[Header], EvmState], begun: MinedBlock | None = None
) -> BuiltBlock:
    """Execute each candidate once; `state_for` gives the state that a header starts from.

    The block holds what `begun` holds, whose state is then the one to start from.
    """
    unrunnable: list[EvmTransaction] = []
    while True:
        header = new_header(plan) if begun is None else begun.header.copy(timestamp=plan.timestamp)
        until = time.monotonic() + plan.seconds_at_most
        filling = BlockFiller(state_for(header), header, until, begun)
        try:
            filling.fill(plan.transactions)
        except UnrunnableError as error:
            # py-evm may have left the state half changed: start again without this candidate.
            unrunnable.append(error.transaction)
            rest = [each for each in plan.transactions if each is not error.transaction]
            plan = replace(plan, transactions=rest)
        else:
            return BuiltBlock(filling.sealed(plan.parent), (*unrunnable, *filling.dropped))


class BlockFiller:
    def __init__(
        self,
        state: EvmState,
        header: Header,
        until_monotonic: float = float("inf"),
        begun: MinedBlock | None = None,
    ) -> None:
        self._state = state
        self._header = header
        self._until = until_monotonic
        self._included = [] if begun is None else list(begun.transactions)
        self._receipts = [] if begun is None else list(begun.receipts)
        self.gas_used = 0 if begun is None else int(begun.header.gas_used)
        self._log_count = sum(len(receipt.logs) for receipt in self._receipts)
        self.dropped: list[EvmTransaction] = []

    def fill(self, candidates: Sequence[EvmTransaction]) -> None:
        skipped_senders: set[Address] = set()
        for transaction in candidates:
            if transaction.sender in skipped_senders:
                continue
            if self._is_unminable(transaction):
                self.dropped.append(transaction)
                skipped_senders.add(transaction.sender)
            elif not self._fits(transaction):
                skipped_senders.add(transaction.sender)
            else:
                self.include(transaction)
                # Checked after an inclusion, so that every block makes progress.
                if time.monotonic() > self._until:
                    break

    def sealed(self, parent: MinedBlock) -> MinedBlock:
        if self._included:
            self._state.persist()
        bloom = 0
        for receipt in self._receipts:
            bloom |= receipt.bloom
        pairs = zip(self._included, self._receipts, strict=True)
        header = self._header.copy(
            state_root=self._state.root,
            gas_used=self.gas_used,
            bloom=bloom,
            transaction_root=ordered_root([transaction.raw for transaction in self._included]),
            receipt_root=ordered_root(
                [receipt.encoded(transaction.type_id) for transaction, receipt in pairs]
            ),
        )
        return MinedBlock(header, parent, self._included, self._receipts)

    def _is_unminable(self, transaction: EvmTransaction) -> bool:
        price = transaction.price(self._header.base_fee_per_gas)
        return (
            transaction.nonce < self._state.nonce(transaction.sender)
            or self._state.balance(transaction.sender) < transaction.gas * price + transaction.value
            or transaction.gas > self._header.gas_limit
            or transaction.gas < transaction.min_gas_limit
        )

    def _fits(self, transaction: EvmTransaction) -> bool:
        return (
            transaction.nonce == self._state.nonce(transaction.sender)
            and transaction.max_fee_per_gas >= self._header.base_fee_per_gas
            and self.gas_used + transaction.gas <= self._header.gas_limit
        )

    def include(self, transaction: EvmTransaction) -> Execution:
        """Raises UnrunnableError; the state is then unusable."""
        try:
            execution = self._state.run(transaction)
        except (VMError, ValidationError, RecursionError) as error:
            raise UnrunnableError(transaction) from error
        computation = execution.computation
        self.gas_used += execution.gas_used
        logs = self._logs(computation)
        self._log_count += len(logs)
        created = None if transaction.to else created_address(transaction.sender, transaction.nonce)
        self._included.append(transaction)
        self._receipts.append(
            MinedReceipt(not computation.is_error, execution.gas_used, self.gas_used, logs, created)
        )
        return execution

    def _logs(self, computation: ComputationAPI) -> tuple[MinedLog, ...]:
        return tuple(
            MinedLog(
                address=Address(address),
                topics=tuple(Hash32(topic.to_bytes(32, "big")) for topic in topics),
                data=data,
                transaction_index=len(self._included),
                index=self._log_count + offset,
            )
            for offset, (address, topics, data) in enumerate(computation.get_log_entries())
        )


def new_header(plan: BlockPlan) -> Header:
    header: Header = PragueBlockHeader
    return header(
        difficulty=0,
        block_number=plan.parent.number + 1,
        gas_limit=plan.gas_limit,
        timestamp=plan.timestamp,
        coinbase=plan.coinbase,
        parent_hash=plan.parent.hash,
        # Random like PREVRANDAO; also gives otherwise equal blocks different hashes.
        mix_hash=os.urandom(32),
        nonce=bytes(8),
        base_fee_per_gas=plan.base_fee,
    )
