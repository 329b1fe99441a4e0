"""Filling one block: which of the waiting transactions it takes, and the header they lead to."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from eth.abc import ComputationAPI
from eth.exceptions import VMError
from eth.vm.forks.cancun import CancunVM
from eth.vm.forks.cancun.blocks import CancunBlockHeader
from eth_utils.exceptions import ValidationError

from ltzd.dev.tester_chain.block import Block, Header, Log, Receipt
from ltzd.dev.tester_chain.ordered_trie import ordered_root
from ltzd.dev.tester_chain.state import State, created_address
from ltzd.dev.tester_chain.transaction import Transaction
from ltzd.values import ZERO_ADDRESS, Address, Hash32

COINBASE: Final = ZERO_ADDRESS


@dataclass(frozen=True)
class Plan:
    """A block to build: `transactions` are candidates in order, those of a sender by nonce."""

    parent: Block
    timestamp: int
    base_fee: int
    transactions: Sequence[Transaction]
    seconds_at_most: float = float("inf")


@dataclass(frozen=True)
class Built:
    block: Block
    dropped: tuple[Transaction, ...]
    """Candidates that can never be mined after this block."""


class _UnrunnableError(Exception):
    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction.hash.hex())
        self.transaction = transaction


def build(plan: Plan, state_for: Callable[[Header], State]) -> Built:
    """Run each transaction once, on the state that a header sees."""
    unrunnable: list[Transaction] = []
    while True:
        header = _opened(plan)
        filling = _Filling(state_for(header), header, time.monotonic() + plan.seconds_at_most)
        try:
            filling.fill(plan.transactions)
        except _UnrunnableError as error:
            # py-evm may have stopped halfway, so the state starts anew without this one.
            unrunnable.append(error.transaction)
            rest = [one for one in plan.transactions if one is not error.transaction]
            plan = replace(plan, transactions=rest)
        else:
            return Built(filling.sealed(plan.parent), (*unrunnable, *filling.dropped))


class _Filling:
    def __init__(self, state: State, header: Header, until_monotonic: float) -> None:
        self._state = state
        self._header = header
        self._until = until_monotonic
        self._gas_used = 0
        self._log_count = 0
        self._included: list[Transaction] = []
        self._receipts: list[Receipt] = []
        self.dropped: list[Transaction] = []

    def fill(self, candidates: Sequence[Transaction]) -> None:
        waiting: set[Address] = set()
        for one in candidates:
            if one.sender in waiting:
                continue
            if self._is_hopeless(one):
                self.dropped.append(one)
                waiting.add(one.sender)
            elif not self._fits(one):
                waiting.add(one.sender)
            else:
                self._include(one)
                # Checked after the first, so every block makes progress.
                if time.monotonic() > self._until:
                    break

    def sealed(self, parent: Block) -> Block:
        if self._included:
            self._state.persist()
        bloom = 0
        for receipt in self._receipts:
            bloom |= receipt.bloom
        pairs = zip(self._included, self._receipts, strict=True)
        header = self._header.copy(
            state_root=self._state.root,
            gas_used=self._gas_used,
            bloom=bloom,
            transaction_root=ordered_root([one.raw for one in self._included]),
            receipt_root=ordered_root([receipt.encoded(one.type_id) for one, receipt in pairs]),
        )
        return Block(header, parent, self._included, self._receipts)

    def _is_hopeless(self, one: Transaction) -> bool:
        price = one.price(self._header.base_fee_per_gas)
        return (
            one.nonce < self._state.nonce(one.sender)
            or self._state.balance(one.sender) < one.gas * price + one.value
            or one.gas > self._header.gas_limit
            or one.gas < one.least_gas
        )

    def _fits(self, one: Transaction) -> bool:
        return (
            one.nonce == self._state.nonce(one.sender)
            and one.max_fee_per_gas >= self._header.base_fee_per_gas
            and self._gas_used + one.gas <= self._header.gas_limit
        )

    def _include(self, one: Transaction) -> None:
        try:
            computation = self._state.run(one)
        except (VMError, ValidationError, RecursionError) as error:
            raise _UnrunnableError(one) from error
        gas_used = int(CancunVM.finalize_gas_used(one, computation))  # type: ignore[arg-type]
        self._gas_used += gas_used
        logs = self._logs(computation)
        self._log_count += len(logs)
        created = None if one.to else created_address(one.sender, one.nonce)
        self._included.append(one)
        self._receipts.append(
            Receipt(not computation.is_error, gas_used, self._gas_used, logs, created)
        )

    def _logs(self, computation: ComputationAPI) -> tuple[Log, ...]:
        return tuple(
            Log(
                address=Address(address),
                topics=tuple(Hash32(topic.to_bytes(32, "big")) for topic in topics),
                data=data,
                transaction_index=len(self._included),
                index=self._log_count + offset,
            )
            for offset, (address, topics, data) in enumerate(computation.get_log_entries())
        )


def _opened(plan: Plan) -> Header:
    header: Header = CancunBlockHeader
    return header(
        difficulty=0,
        block_number=plan.parent.number + 1,
        gas_limit=plan.parent.header.gas_limit,
        timestamp=plan.timestamp,
        coinbase=COINBASE,
        parent_hash=plan.parent.hash,
        # Random as PREVRANDAO is; it also tells apart blocks that are otherwise the same.
        mix_hash=os.urandom(32),
        nonce=bytes(8),
        base_fee_per_gas=plan.base_fee,
    )
