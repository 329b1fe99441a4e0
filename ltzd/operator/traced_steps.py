"""Spans of a lane's transactions, in the traces of the events whose rewards they mint."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from ltzd import tracing
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.values import hex_of

_NANOSECONDS = 1_000_000_000


class TracedSteps:
    """Knows since when each transaction in flight is in its state. Empty while tracing is off."""

    def __init__(self) -> None:
        self._since: dict[int, int] = {}
        self._rewards: dict[int, Sequence[UUID]] = {}

    def resume(self, rewards: Mapping[int, Sequence[UUID]]) -> None:
        """Take the rewards of transactions that an earlier term has signed, by transaction."""
        self._rewards.update(rewards)

    def signed(self, tx: OpenTransaction) -> None:
        if tracing.is_on():
            self._since[tx.id] = tracing.now()
            if tx.rewards:
                self._rewards[tx.id] = tx.rewards

    def published(self, tx: OpenTransaction) -> None:
        if tracing.is_on():
            self._step("mint published", tx, {"ltzd.transaction_hash": hex_of(tx.hashes[0])})
            self._since[tx.id] = tracing.now()

    def mined(self, tx: OpenTransaction) -> None:
        inclusion = tx.tx.inclusion
        if tracing.is_on() and inclusion is not None:
            block = {"ltzd.block": inclusion.block_number}
            self._step("block", tx, block | {"ltzd.block_hash": hex_of(inclusion.block_hash)})

    def forget(self, tx: OpenTransaction) -> None:
        self._since.pop(tx.id, None)
        self._rewards.pop(tx.id, None)

    def _step(self, name: str, tx: OpenTransaction, attributes: tracing.Attributes) -> None:
        begun_at = self._since.get(tx.id, tracing.now() - int(tx.age_seconds * _NANOSECONDS))
        ids = {"ltzd.transaction": tx.id, "ltzd.nonce": tx.nonce}
        tracing.step(name, self._rewards.get(tx.id, tx.rewards), begun_at, {**ids, **attributes})
