"""The lane's transactions in flight: the rows that have no receipt yet, mirrored in memory.

The rows are the truth; one process holds the lane, so the mirror cannot go stale.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from ltzd import telemetry
from ltzd.operator.lane_work import OutcomeSink, StateChange
from ltzd.operator.policy import FEES
from ltzd.rules.operator.transactions import (
    Accepted,
    Effect,
    Observation,
    State,
    Transaction,
    advance,
)
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import Attempt, OpenTransaction
from ltzd.store.wakeups import Wakeup
from ltzd.values import LTZ

log = structlog.get_logger()

_IN_FLIGHT = (State.SIGNED, State.PUBLISHED)


class InFlightTransactions:
    def __init__(self, pool: Pool, lane: Lane, rows: OutcomeSink) -> None:
        self._pool = pool
        self._lane = lane
        self._rows = rows
        self._by_nonce: dict[int, OpenTransaction] = {}
        self._reserved_wei = 0
        self._gas = 0
        self._to_publish: dict[int, None] = {}
        self._refused: set[int] = set()
        self._rejected: set[int] = set()
        self._stranded: dict[int, str] = {}
        self.held: str | None = None
        """Why what is in flight can go no further, so that more would only queue up behind it."""
        self._to_mark: list[OpenTransaction] = []
        self._marks = Wakeup()

    async def load(self) -> None:
        """Read what an earlier term left in flight; all of it is to be published again."""
        async with session(self._pool) as connection:
            for tx in await transactions.in_flight(connection, self._lane):
                self.add(tx)

    def add(self, tx: OpenTransaction) -> None:
        self._hold(tx)
        self._to_publish[tx.nonce] = None
        self._measure()

    def oldest_first(self) -> list[OpenTransaction]:
        return [self._by_nonce[nonce] for nonce in sorted(self._by_nonce)]

    def count(self) -> int:
        return len(self._by_nonce)

    def reserved_wei(self) -> int:
        """What everything in flight can cost at worst."""
        return self._reserved_wei

    def gas(self) -> int:
        """What everything in flight can use at worst."""
        return self._gas

    def minting(self) -> int:
        """LTZ's smallest units that everything in flight mints."""
        return sum(tx.ltz for tx in self._by_nonce.values()) * LTZ

    def due(self, at_most: int) -> list[OpenTransaction]:
        """What is to be published, the lowest nonces of it, in their order."""
        return [self._by_nonce[nonce] for nonce in heapq.nsmallest(at_most, self._to_publish)]

    @property
    def has_due(self) -> bool:
        return bool(self._to_publish)

    def set_aside(self, tx: OpenTransaction) -> None:
        """Do not publish it now: the node will not take these bytes, a receipt must decide."""
        if self._is_newest(tx):
            self._to_publish.pop(tx.nonce, None)

    def refused(self, tx: OpenTransaction) -> None:
        """The node will not take these bytes at their price."""
        if self._is_newest(tx):
            self._to_publish.pop(tx.nonce, None)
            self._refused.add(tx.nonce)
            self.held = FEES

    def is_refused(self, tx: OpenTransaction) -> bool:
        return tx.nonce in self._refused

    def reject(self, tx: OpenTransaction, reason: str) -> None:
        """These bytes will never do: they are published no more, and their nonce is to be freed."""
        if self._is_newest(tx) and tx.nonce in self._by_nonce:
            self._to_publish.pop(tx.nonce, None)
            self._refused.discard(tx.nonce)
            self._rejected.add(tx.nonce)
            self._stranded[tx.nonce] = reason

    def is_rejected(self, tx: OpenTransaction) -> bool:
        return tx.nonce in self._rejected

    def rejected_transactions(self) -> list[OpenTransaction]:
        return [self._by_nonce[nonce] for nonce in sorted(self._rejected)]

    def strand(self, tx: OpenTransaction, reason: str) -> None:
        """The nonce of rejected bytes cannot be freed for this reason."""
        self._stranded[tx.nonce] = reason

    @property
    def stranded(self) -> str | None:
        """Why a nonce that nothing fills holds up whatever would be signed behind it."""
        return next(iter(self._stranded.values()), None)

    def holds(self, nonce: int) -> bool:
        return nonce in self._by_nonce

    def is_to_publish(self, tx: OpenTransaction) -> bool:
        return tx.nonce in self._to_publish

    def publish_again(self, those: Iterable[OpenTransaction]) -> None:
        for tx in those:
            if tx.nonce in self._by_nonce and tx.nonce not in self._rejected:
                self._to_publish[tx.nonce] = None

    def offer_again(self, those: Sequence[OpenTransaction]) -> None:
        """Publish again what may have been refused: the node may think better of it."""
        for tx in those:
            self._refused.discard(tx.nonce)
            self._rejected.discard(tx.nonce)
        self.publish_again(those)

    def replaced(self, tx: OpenTransaction, newest: Attempt) -> None:
        """Another attempt of it is stored, and is to be published."""
        current = self._by_nonce.get(tx.nonce, tx)
        cancellations = (newest.hash,) if newest.is_cancellation else ()
        self._hold(
            replace(
                current,
                fees=newest.fees,
                hashes=(newest.hash, *tx.hashes),
                raw=newest.raw,
                cancellations=(*cancellations, *current.cancellations),
            )
        )
        self._to_publish[tx.nonce] = None
        self._forget_refusals(tx.nonce)
        self._measure()

    def abandoned(self, tx: OpenTransaction, after: Transaction, newest: Attempt) -> None:
        """A self-transfer is stored in place of its call, which may be mined all the same."""
        current = self._by_nonce.get(tx.nonce, tx)
        self._hold(replace(current, tx=after, call_wei=current.max_cost_wei))
        self.replaced(tx, newest)

    def published(self, tx: OpenTransaction) -> None:
        """A node holds the bytes; `run` writes it down and tells who waits for the hash."""
        self._to_mark.append(tx)
        self._marks.notify()
        if self._is_newest(tx):
            self._to_publish.pop(tx.nonce, None)
            self._forget_refusals(tx.nonce)
        current = self._by_nonce.get(tx.nonce)
        if current is not None:
            if current.tx.state is State.SIGNED:
                self._time(current, State.PUBLISHED)
            heard, _ = advance(current.tx, Accepted())
            self._hold(replace(current, tx=heard))

    def _is_newest(self, tx: OpenTransaction) -> bool:
        """False for bytes that were replaced while they were on their way to the node."""
        current = self._by_nonce.get(tx.nonce)
        return current is None or current.hashes == tx.hashes

    async def run(self) -> None:
        """Mark as published what was, off the path of the next batch; then its hash may be shown.

        Dying before it costs a second publication of the same bytes.
        """
        while True:
            await self._marks.wait()
            marked, self._to_mark = self._to_mark, []
            if not marked:
                continue
            async with session(self._pool) as connection:
                await transactions.mark_published(connection, [tx.hashes[0] for tx in marked])
            self._rows.published(marked)

    async def hear(self, those: Sequence[tuple[OpenTransaction, Observation]]) -> None:
        """Advance transactions; save them, with what waits for them, in one commit."""
        changes: list[tuple[Transaction, OpenTransaction]] = []
        moved: list[StateChange] = []
        for tx, seen in those:
            known = self._by_nonce.get(tx.nonce, tx)
            after, effects = advance(known.tx, seen)
            if after != known.tx:
                now = replace(known, tx=after)
                changes.append((known.tx, now))
                moved.append((now, effects))
        if not moved:
            return
        async with transaction(self._pool) as connection:
            await transactions.save(connection, self._lane, changes)
            await self._rows.follow(connection, moved)
        for tx, effects in moved:
            self._note(tx, effects)
        self._measure()
        self._rows.tell(moved)

    def _note(self, tx: OpenTransaction, effects: list[Effect]) -> None:
        self._mirror(tx)
        self._count(tx.tx.state)
        self._time(tx, tx.tx.state)
        if Effect.ALERT in effects:
            log.error("transaction.alert", transaction=tx.id, state=tx.tx.state.value)

    def _mirror(self, tx: OpenTransaction) -> None:
        if tx.tx.state in _IN_FLIGHT:
            self._hold(tx)
            self._to_publish[tx.nonce] = None
        else:
            self._let_go(tx.nonce)
            self._to_publish.pop(tx.nonce, None)
            self._forget_refusals(tx.nonce)

    def _forget_refusals(self, nonce: int) -> None:
        self._refused.discard(nonce)
        self._rejected.discard(nonce)
        self._stranded.pop(nonce, None)

    def _hold(self, tx: OpenTransaction) -> None:
        self._let_go(tx.nonce)
        self._by_nonce[tx.nonce] = tx
        self._reserved_wei += tx.max_cost_wei
        self._gas += tx.gas_limit

    def _let_go(self, nonce: int) -> None:
        tx = self._by_nonce.pop(nonce, None)
        if tx is not None:
            self._reserved_wei -= tx.max_cost_wei
            self._gas -= tx.gas_limit

    def _measure(self) -> None:
        telemetry.IN_FLIGHT.labels(self._lane.kind).set(len(self._by_nonce))
        telemetry.RESERVED_WEI.labels(self._lane.kind).set(self._reserved_wei)

    def _time(self, tx: OpenTransaction, stage: State) -> None:
        age = datetime.now(UTC) - tx.created_at
        seconds = telemetry.TRANSACTION_SECONDS.labels(self._lane.kind, stage.value)
        seconds.observe(age.total_seconds())

    def _count(self, state: State) -> None:
        match state:
            case State.CONFIRMED:
                telemetry.TRANSACTIONS_SUCCESS.labels(self._lane.kind).inc()
            case State.REVERTED | State.DISPLACED | State.CANCELLED:
                telemetry.TRANSACTIONS_FAILED.labels(self._lane.kind, state.value).inc()
            case State.PUBLISHED:
                telemetry.TRANSACTIONS_DEMOTED.labels(self._lane.kind).inc()
