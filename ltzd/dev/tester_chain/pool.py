"""Transactions that wait for a block, by sender and nonce.

A nonce in the future waits until the ones before it are here. Nothing is executed: whether a
transaction will succeed is known when a block holds it. Refusals are spelt as geth does.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from ltzd.dev.tester_chain.errors import refused
from ltzd.dev.tester_chain.transaction import Transaction
from ltzd.values import Address, Hash32, checksummed

CAPACITY = 200_000
_LEAST_BUMP_PERCENT = 10
_INITCODE_BYTES_AT_MOST = 49_152
_NONCE_LIMIT = 2**64 - 1

NonceOf = Callable[[Address], int]


class Pool:
    def __init__(self, chain_id: int, gas_limit: int) -> None:
        self._chain_id = chain_id
        self._gas_limit = gas_limit
        self._by_hash: dict[Hash32, Transaction] = {}
        self._by_sender: dict[Address, dict[int, Transaction]] = {}
        self._cost_of: dict[Address, int] = {}
        self._arrival: dict[Hash32, int] = {}
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._by_hash)

    def find(self, transaction_hash: Hash32) -> Transaction | None:
        return self._by_hash.get(transaction_hash)

    def add(self, one: Transaction, next_nonce: int, balance: int) -> None:
        """Take a transaction whose sender has this nonce and balance. Raises RpcError."""
        if one.hash in self._by_hash:
            raise refused("already known")
        self._check_form(one)
        if one.nonce >= _NONCE_LIMIT:
            raise refused("nonce has max value")
        if one.nonce < next_nonce:
            raise refused(f"nonce too low: next nonce {next_nonce}, tx nonce {one.nonce}")
        rival = self._by_sender.get(one.sender, {}).get(one.nonce)
        self._check_funds(one, balance, rival)
        if rival is not None:
            _check_bump(rival, one)
            self._remove(rival)
        elif len(self) >= CAPACITY:
            raise refused("txpool is full")
        self._insert(one)

    def next_nonce(self, sender: Address, nonce: int) -> int:
        """The first nonce from `nonce` on that is not here."""
        waiting = self._by_sender.get(sender, {})
        while nonce in waiting:
            nonce += 1
        return nonce

    def executable(self, nonce_of: NonceOf, base_fee: int) -> Iterator[Transaction]:
        """The best tip first, then the earliest; those of one sender in the order of nonces."""
        heap: list[tuple[int, int, Transaction]] = []
        for sender in self._by_sender:
            self._offer(heap, sender, nonce_of(sender), base_fee)
        while heap:
            *_, best = heapq.heappop(heap)
            yield best
            self._offer(heap, best.sender, best.nonce + 1, base_fee)

    def forget(self, transactions: Iterable[Transaction]) -> None:
        for one in transactions:
            if one.hash in self._by_hash:
                self._remove(one)

    def forget_below(self, sender: Address, nonce: int) -> None:
        """Drop what a mined transaction of this sender has made impossible."""
        waiting = self._by_sender.get(sender, {})
        for one in [one for one in waiting.values() if one.nonce < nonce]:
            self._remove(one)

    def clear(self) -> None:
        self.forget(list(self._by_hash.values()))

    def by_sender(self) -> Mapping[Address, Mapping[int, Transaction]]:
        return self._by_sender

    def _check_form(self, one: Transaction) -> None:
        if one.chain_id not in {None, self._chain_id}:
            raise refused(
                "invalid sender: invalid chain id for signer: "
                f"have {one.chain_id} want {self._chain_id}"
            )
        if one.max_priority_fee_per_gas > one.max_fee_per_gas:
            raise refused(
                "max priority fee per gas higher than max fee per gas: "
                f"address {checksummed(one.sender)}, "
                f"maxPriorityFeePerGas: {one.max_priority_fee_per_gas}, "
                f"maxFeePerGas: {one.max_fee_per_gas}"
            )
        if not one.to and len(one.data) > _INITCODE_BYTES_AT_MOST:
            raise refused(
                "max initcode size exceeded: "
                f"code size {len(one.data)}, limit {_INITCODE_BYTES_AT_MOST}"
            )
        if one.gas > self._gas_limit:
            raise refused("exceeds block gas limit")
        if one.gas < one.least_gas:
            raise refused(f"intrinsic gas too low: gas {one.gas}, minimum needed {one.least_gas}")

    def _check_funds(self, one: Transaction, balance: int, rival: Transaction | None) -> None:
        if balance < one.cost:
            raise refused(
                "insufficient funds for gas * price + value: "
                f"balance {balance}, tx cost {one.cost}, overshot {one.cost - balance}"
            )
        queued = self._cost_of.get(one.sender, 0) - (rival.cost if rival else 0)
        if balance < queued + one.cost:
            raise refused(
                "insufficient funds for gas * price + value: "
                f"balance {balance}, queued cost {queued}, tx cost {one.cost}, "
                f"overshot {queued + one.cost - balance}"
            )

    def _insert(self, one: Transaction) -> None:
        self._by_hash[one.hash] = one
        self._by_sender.setdefault(one.sender, {})[one.nonce] = one
        self._cost_of[one.sender] = self._cost_of.get(one.sender, 0) + one.cost
        self._arrival[one.hash] = next(self._arrivals)

    def _remove(self, one: Transaction) -> None:
        del self._by_hash[one.hash]
        del self._arrival[one.hash]
        self._cost_of[one.sender] -= one.cost
        waiting = self._by_sender[one.sender]
        del waiting[one.nonce]
        if not waiting:
            del self._by_sender[one.sender]
            del self._cost_of[one.sender]

    def _offer(
        self,
        heap: list[tuple[int, int, Transaction]],
        sender: Address,
        nonce: int,
        base_fee: int,
    ) -> None:
        one = self._by_sender[sender].get(nonce)
        if one is not None and one.max_fee_per_gas >= base_fee:
            tip = one.price(base_fee) - base_fee
            heapq.heappush(heap, (-tip, self._arrival[one.hash], one))


def _check_bump(old: Transaction, new: Transaction) -> None:
    """A rival for the same nonce pays 10 % more, in tip and in cap."""
    factor = 100 + _LEAST_BUMP_PERCENT
    if (
        new.max_fee_per_gas * 100 < old.max_fee_per_gas * factor
        or new.max_priority_fee_per_gas * 100 < old.max_priority_fee_per_gas * factor
    ):
        raise refused("replacement transaction underpriced")
