"""The transaction pool: transactions that wait for a block, by sender and nonce.

A transaction with a nonce gap waits until the gap is filled. The pool executes nothing, so it
accepts transactions that will revert. Its refusals have geth's messages.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from ltzd.dev.tester_chain.errors import cap_too_low, refused, tip_above_cap
from ltzd.dev.tester_chain.execution.transaction import EvmTransaction
from ltzd.values import Address, Hash32

CAPACITY = 200_000
# geth's default.
LIFETIME_SECONDS = 3 * 3_600.0
_LEAST_BUMP_PERCENT = 10
_INITCODE_BYTES_AT_MOST = 49_152
_NONCE_LIMIT = 2**64 - 1
_SET_CODE = 4

NonceOf = Callable[[Address], int]


class TransactionPool:
    def __init__(
        self, chain_id: int, gas_limit: int, lifetime_seconds: float = LIFETIME_SECONDS
    ) -> None:
        self.removals = 0
        self._lifetime_seconds = lifetime_seconds
        self._chain_id = chain_id
        self.gas_limit = gas_limit
        self._by_hash: dict[Hash32, EvmTransaction] = {}
        self._by_sender: dict[Address, dict[int, EvmTransaction]] = {}
        self._cost_of: dict[Address, int] = {}
        self._arrival: dict[Hash32, int] = {}
        self._arrivals = count()
        self._arrived_at: dict[Hash32, float] = {}

    def __len__(self) -> int:
        return len(self._by_hash)

    def find(self, transaction_hash: Hash32) -> EvmTransaction | None:
        return self._by_hash.get(transaction_hash)

    def add(
        self,
        transaction: EvmTransaction,
        next_nonce: int,
        balance: int,
        base_fee: int,
        now: float,
    ) -> None:
        """Add a transaction whose sender has this nonce and balance. Raises JsonRpcError.

        `base_fee` is the next block's. A higher one that comes later leaves the transaction here.
        """
        if transaction.hash in self._by_hash:
            raise refused("already known")
        self._check_form(transaction)
        if transaction.nonce >= _NONCE_LIMIT:
            raise refused("nonce has max value")
        if transaction.nonce < next_nonce:
            raise refused(f"nonce too low: next nonce {next_nonce}, tx nonce {transaction.nonce}")
        replaced = self._by_sender.get(transaction.sender, {}).get(transaction.nonce)
        self._check_funds(transaction, balance, replaced)
        if transaction.max_fee_per_gas < base_fee:
            raise cap_too_low(transaction.sender, transaction.max_fee_per_gas, base_fee)
        if replaced is not None:
            _check_bump(replaced, transaction)
            self._remove(replaced)
        elif len(self) >= CAPACITY:
            raise refused("txpool is full")
        self._insert(transaction, now)

    def next_nonce(self, sender: Address, nonce: int) -> int:
        """The first nonce from `nonce` on that is not in the pool."""
        waiting = self._by_sender.get(sender, {})
        while nonce in waiting:
            nonce += 1
        return nonce

    def executable(self, nonce_of: NonceOf, base_fee: int) -> Iterator[EvmTransaction]:
        """Highest tip first, then earliest arrival; each sender's transactions in nonce order."""
        heap: list[tuple[int, int, EvmTransaction]] = []
        for sender in self._by_sender:
            self._offer(heap, sender, nonce_of(sender), base_fee)
        while heap:
            *_, best = heapq.heappop(heap)
            yield best
            self._offer(heap, best.sender, best.nonce + 1, base_fee)

    def forget(self, transactions: Iterable[EvmTransaction]) -> None:
        for transaction in transactions:
            if transaction.hash in self._by_hash:
                self._remove(transaction)

    def forget_below(self, sender: Address, nonce: int) -> None:
        """Drop this sender's transactions with a lower nonce."""
        waiting = self._by_sender.get(sender, {})
        self.forget([each for each in waiting.values() if each.nonce < nonce])

    def expire(self, now: float, nonce_of: NonceOf, base_fee: int) -> None:
        """Drop what has waited for too long and cannot be executed now, as geth does.

        Such a transaction has a nonce gap, or a cap below the base fee.
        """
        oldest = next(iter(self._arrived_at.values()), now)
        if now - oldest <= self._lifetime_seconds:
            return
        executable = {each.hash for each in self.executable(nonce_of, base_fee)}
        old = [key for key, at in self._arrived_at.items() if now - at > self._lifetime_seconds]
        self.forget([self._by_hash[key] for key in old if key not in executable])

    def clear(self) -> None:
        self.forget(list(self._by_hash.values()))

    def by_sender(self) -> Mapping[Address, Mapping[int, EvmTransaction]]:
        return self._by_sender

    def _check_form(self, transaction: EvmTransaction) -> None:
        if transaction.chain_id not in {None, self._chain_id}:
            raise refused(
                "invalid sender: invalid chain id for signer: "
                f"have {transaction.chain_id} want {self._chain_id}"
            )
        if transaction.max_priority_fee_per_gas > transaction.max_fee_per_gas:
            raise tip_above_cap(
                transaction.sender,
                transaction.max_priority_fee_per_gas,
                transaction.max_fee_per_gas,
            )
        if transaction.type_id == _SET_CODE and not transaction.to:
            raise refused("set code transaction must not be a create transaction")
        if transaction.type_id == _SET_CODE and not transaction.authorization_list:
            raise refused("set code tx must have at least one authorization tuple")
        if not transaction.to and len(transaction.data) > _INITCODE_BYTES_AT_MOST:
            raise refused(
                "max initcode size exceeded: "
                f"code size {len(transaction.data)}, limit {_INITCODE_BYTES_AT_MOST}"
            )
        if transaction.gas > self.gas_limit:
            raise refused("exceeds block gas limit")
        if transaction.gas < transaction.charged_gas:
            raise refused(
                f"intrinsic gas too low: gas {transaction.gas}, "
                f"minimum needed {transaction.charged_gas}"
            )
        if transaction.gas < transaction.floor_gas:
            raise refused(
                f"insufficient gas for floor data gas cost: gas {transaction.gas}, "
                f"minimum needed {transaction.floor_gas}"
            )

    def _check_funds(
        self, transaction: EvmTransaction, balance: int, replaced: EvmTransaction | None
    ) -> None:
        if balance < transaction.cost:
            raise refused(
                "insufficient funds for gas * price + value: "
                f"balance {balance}, tx cost {transaction.cost}, "
                f"overshot {transaction.cost - balance}"
            )
        queued = self._cost_of.get(transaction.sender, 0) - (replaced.cost if replaced else 0)
        if balance < queued + transaction.cost:
            raise refused(
                "insufficient funds for gas * price + value: "
                f"balance {balance}, queued cost {queued}, tx cost {transaction.cost}, "
                f"overshot {queued + transaction.cost - balance}"
            )

    def _insert(self, transaction: EvmTransaction, now: float) -> None:
        self._by_hash[transaction.hash] = transaction
        self._by_sender.setdefault(transaction.sender, {})[transaction.nonce] = transaction
        self._cost_of[transaction.sender] = (
            self._cost_of.get(transaction.sender, 0) + transaction.cost
        )
        self._arrival[transaction.hash] = next(self._arrivals)
        self._arrived_at[transaction.hash] = now

    def _remove(self, transaction: EvmTransaction) -> None:
        self.removals += 1
        del self._by_hash[transaction.hash]
        del self._arrival[transaction.hash]
        del self._arrived_at[transaction.hash]
        self._cost_of[transaction.sender] -= transaction.cost
        waiting = self._by_sender[transaction.sender]
        del waiting[transaction.nonce]
        if not waiting:
            del self._by_sender[transaction.sender]
            del self._cost_of[transaction.sender]

    def _offer(
        self,
        heap: list[tuple[int, int, EvmTransaction]],
        sender: Address,
        nonce: int,
        base_fee: int,
    ) -> None:
        transaction = self._by_sender[sender].get(nonce)
        if transaction is not None and transaction.max_fee_per_gas >= base_fee:
            tip = transaction.price(base_fee) - base_fee
            heapq.heappush(heap, (-tip, self._arrival[transaction.hash], transaction))


def _check_bump(old: EvmTransaction, new: EvmTransaction) -> None:
    """A replacement must raise both tip and cap by 10 %. Raises JsonRpcError."""
    factor = 100 + _LEAST_BUMP_PERCENT
    if (
        new.max_fee_per_gas * 100 < old.max_fee_per_gas * factor
        or new.max_priority_fee_per_gas * 100 < old.max_priority_fee_per_gas * factor
    ):
        raise refused("replacement transaction underpriced")
