"""The lane's transactions in flight: the rows that have no receipt yet, mirrored in memory.

The rows are the truth; one process holds the lane, so the mirror cannot go stale. State changes go
one at a time through `hear`.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import structlog

from ltzd import telemetry
from ltzd.operator.policy import MINT, OnPublished
from ltzd.rules.transactions import Accepted, Effect, Observation, State, advance
from ltzd.store import rewards, transactions
from ltzd.store.database import Pool, session, transaction
from ltzd.store.lanes import Lane
from ltzd.store.signals import PUBLISHED, REWARDS, Signals
from ltzd.store.transactions import OpenTransaction

log = structlog.get_logger()

_IN_FLIGHT = (State.SIGNED, State.PUBLISHED)


class Book:
    def __init__(self, pool: Pool, lane: Lane, signals: Signals, on_published: OnPublished) -> None:
        self._pool = pool
        self._on_published = on_published
        self._lane = lane
        self._signals = signals
        self._turn = asyncio.Lock()
        self._by_nonce: dict[int, OpenTransaction] = {}
        self._to_publish: dict[int, None] = {}

    async def load(self) -> None:
        """Read what an earlier term left in flight; all of it is to be published again."""
        async with session(self._pool) as connection:
            for tx in await transactions.in_flight(connection, self._lane):
                self.add(tx)

    def add(self, tx: OpenTransaction) -> None:
        self._by_nonce[tx.nonce] = tx
        self._to_publish[tx.nonce] = None
        self._measure()

    def in_flight(self) -> list[OpenTransaction]:
        return [self._by_nonce[nonce] for nonce in sorted(self._by_nonce)]

    def count(self) -> int:
        return len(self._by_nonce)

    def reserved_wei(self) -> int:
        """What everything in flight can cost at worst."""
        return sum(tx.gas_limit * tx.max_fee_per_gas for tx in self._by_nonce.values())

    def next_to_publish(self) -> OpenTransaction | None:
        return self._by_nonce[min(self._to_publish)] if self._to_publish else None

    def set_aside(self, tx: OpenTransaction) -> None:
        """Do not publish it now: the node will not take these bytes, a receipt must decide."""
        self._to_publish.pop(tx.nonce, None)

    def publish_again(self, those: Iterable[OpenTransaction]) -> None:
        for tx in those:
            if tx.nonce in self._by_nonce:
                self._to_publish[tx.nonce] = None

    async def published(self, tx: OpenTransaction) -> None:
        """A node holds the bytes: from now on the hash may be shown."""
        async with self._turn:
            self._to_publish.pop(tx.nonce, None)
            if tx.rewards:
                self._on_published(tx.rewards, tx.hashes[0])
            async with session(self._pool) as connection:
                await transactions.mark_published(connection, tx.hashes[0])
            current = self._by_nonce.get(tx.nonce)
            if current is not None:
                heard, _ = advance(current.tx, Accepted())
                self._by_nonce[tx.nonce] = replace(current, tx=heard)
        if not tx.rewards:
            self._signals.ring(PUBLISHED)

    async def hear(self, tx: OpenTransaction, seen: Observation) -> list[Effect]:
        """Advance one transaction, save it with its effects on rewards, and mirror it."""
        async with self._turn:
            current = self._by_nonce.get(tx.nonce, tx)
            after, effects = advance(current.tx, seen)
            if after == current.tx:
                return effects
            opened = transaction if Effect.REQUEUE in effects else session
            async with opened(self._pool) as connection:
                await transactions.save(connection, self._lane, tx.id, current.tx.state, after)
                if Effect.REQUEUE in effects:
                    await rewards.requeue(connection, tx.id)
            self._mirror(replace(current, tx=after))
        if Effect.REQUEUE in effects:
            self._signals.ring(REWARDS)
        if Effect.ALERT in effects:
            log.error(
                "transaction.alert", transaction=tx.id, nonce=tx.nonce, state=after.state.value
            )
        _count(after.state)
        return effects

    def _mirror(self, tx: OpenTransaction) -> None:
        if tx.tx.state in _IN_FLIGHT:
            self._by_nonce[tx.nonce] = tx
            self._to_publish[tx.nonce] = None
        else:
            self._by_nonce.pop(tx.nonce, None)
            self._to_publish.pop(tx.nonce, None)
        self._measure()

    def _measure(self) -> None:
        telemetry.IN_FLIGHT.labels(MINT).set(len(self._by_nonce))
        telemetry.RESERVED_WEI.labels(MINT).set(self.reserved_wei())


def _count(state: State) -> None:
    match state:
        case State.CONFIRMED:
            telemetry.TRANSACTIONS_SUCCESS.labels(MINT).inc()
        case State.REVERTED | State.DISPLACED:
            telemetry.TRANSACTIONS_FAILED.labels(MINT, state.value).inc()
        case State.PUBLISHED:
            telemetry.TRANSACTIONS_DEMOTED.labels(MINT).inc()
