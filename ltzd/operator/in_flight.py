"""The lane's transactions in flight: the rows that have no receipt yet, mirrored in memory.

The rows are authoritative. The mirror cannot go stale, since one process holds the lane.
"""

import asyncio
import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import structlog
from msgspec.structs import replace
from prometheus_client import Histogram

from ltzd import telemetry, tracing
from ltzd.operator.fleet import lane_gauges
from ltzd.operator.lane_work import OutcomeSink, StateChange
from ltzd.operator.policy import FEES
from ltzd.operator.traced_steps import TracedSteps
from ltzd.rules.operator.l1_costs import NO_L1_COSTS, L1Costs
from ltzd.rules.operator.transactions import (
    Accepted,
    Effect,
    Finalized,
    Observation,
    State,
    Transaction,
    advance,
)
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.operator import rewards, transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import Attempt, OpenTransaction
from ltzd.store.wakeups import Wakeup
from ltzd.values import LTZ

log = structlog.get_logger()

_LOGGED = (State.MINED, State.CONFIRMED)
"""Other states have lines of their own, with reasons."""
_IN_FLIGHT = (State.SIGNED, State.PUBLISHED)


class InFlightTransactions:
    """The mirror, with the nonces that are due for publication and those that nodes refuse."""

    def __init__(
        self, pool: Pool, lane: Lane, outcomes: OutcomeSink, record_after: float = 0.0
    ) -> None:
        """Publications are recorded after `record_after` seconds, unless they are mined by then."""
        self._pool = pool
        self._lane = lane
        self._outcomes = outcomes
        self._record_after = record_after
        self._by_nonce: dict[int, OpenTransaction] = {}
        self._reserved_wei = 0
        self._signing_wei = 0
        self._l1_costs = NO_L1_COSTS
        self._gas = 0
        self._bytes = 0
        self._due: dict[int, None] = {}
        self._refused: set[int] = set()
        self._rejected: set[int] = set()
        self._blocked: dict[int, str] = {}
        self._held_reason: str | None = None
        self._steps = TracedSteps()
        self._to_mark: list[OpenTransaction] = []
        self._marks = Wakeup(None)

    async def load(self) -> None:
        """Read the transactions that an earlier term left in flight; all are published again."""
        async with session(self._pool) as connection:
            resumed = await transactions.in_flight(connection, self._lane)
            if tracing.is_on():
                ids = [tx.id for tx in resumed]
                self._steps.resume(await rewards.of_transactions(connection, ids))
        self.add(*resumed)

    def add(self, *signed: OpenTransaction) -> None:
        for tx in signed:
            self._put(tx)
            self._due[tx.nonce] = None
            self._steps.signed(tx)
        self._set_gauges()

    def set_l1_costs(self, l1_costs: L1Costs) -> None:
        """From now on reservations include these prices of a rollup."""
        self._l1_costs = l1_costs

    def oldest_first(self) -> list[OpenTransaction]:
        return [self._by_nonce[nonce] for nonce in sorted(self._by_nonce)]

    def count(self) -> int:
        return len(self._by_nonce)

    def contains(self, nonce: int) -> bool:
        return nonce in self._by_nonce

    def with_id(self, id_: int) -> OpenTransaction | None:
        return next((tx for tx in self._by_nonce.values() if tx.id == id_), None)

    def current(self, tx: OpenTransaction) -> OpenTransaction | None:
        """The transaction's present state, or None if it is settled or has a newer attempt."""
        current = self._by_nonce.get(tx.nonce)
        return current if current is not None and current.hashes == tx.hashes else None

    @contextmanager
    def reserving(self, wei: int) -> Iterator[None]:
        """Reserve the cost of a transaction that is being signed, until it is in flight.

        Begin the block without a pause after the check of the balance: signatures that are under
        way at the same time could otherwise spend the same balance.
        """
        self._signing_wei += wei
        try:
            yield
        finally:
            self._signing_wei -= wei
            self._set_gauges()

    def reserved_wei(self, beside: OpenTransaction | None = None) -> int:
        """The most that all transactions in flight or being signed can cost, except `beside`."""
        wei, size, gas, count = self._reserved_wei, self._bytes, self._gas, len(self._by_nonce)
        left_out = None if beside is None else self._by_nonce.get(beside.nonce)
        if left_out is not None:
            wei, size = wei - left_out.max_cost_wei, size - len(left_out.raw)
            gas, count = gas - left_out.gas_limit, count - 1
        return wei + self._signing_wei + self._l1_costs.max_fee_wei(size, gas, count)

    def gas(self) -> int:
        """The most gas that everything in flight can use together."""
        return self._gas

    def minted_units(self) -> int:
        """LTZ's smallest units that everything in flight mints."""
        return sum(tx.ltz for tx in self._by_nonce.values()) * LTZ

    # Publication

    def due(self, at_most: int) -> list[OpenTransaction]:
        """The transactions to publish now, the lowest nonces first."""
        return [self._by_nonce[nonce] for nonce in heapq.nsmallest(at_most, self._due)]

    @property
    def has_due(self) -> bool:
        return bool(self._due)

    def is_due(self, tx: OpenTransaction) -> bool:
        return tx.nonce in self._due

    def are_lower_nonces_accepted(self, tx: OpenTransaction) -> bool:
        """Whether nodes hold the bytes of all lower nonces, as far as the lane knows."""
        return min((*self._due, *self._refused, *self._rejected), default=tx.nonce) >= tx.nonce

    def wait_for_receipt(self, tx: OpenTransaction) -> None:
        """Stop publishing this nonce, which the node refuses: a receipt must decide."""
        if self._is_newest(tx):
            self._due.pop(tx.nonce, None)

    def publish_again(self, batch: Iterable[OpenTransaction]) -> None:
        for tx in batch:
            if tx.nonce in self._by_nonce and tx.nonce not in self._rejected:
                self._due[tx.nonce] = None

    def retry_refused(self, batch: Sequence[OpenTransaction]) -> None:
        """Publish refused bytes again, in case the nodes accept them now."""
        for tx in batch:
            self._refused.discard(tx.nonce)
            self._rejected.discard(tx.nonce)
        self.publish_again(batch)

    # Refusals

    def refuse_price(self, tx: OpenTransaction) -> None:
        """Stop publishing bytes whose fees nodes refuse, until fees fall or they are replaced."""
        if self._is_newest(tx):
            self._due.pop(tx.nonce, None)
            self._refused.add(tx.nonce)
            self._held_reason = FEES

    def is_refused(self, tx: OpenTransaction) -> bool:
        return tx.nonce in self._refused

    def reject(self, tx: OpenTransaction, reason: str) -> None:
        """Stop publishing bytes that nodes refuse for good; their nonce blocks the later ones."""
        if self._is_newest(tx) and tx.nonce in self._by_nonce:
            self._due.pop(tx.nonce, None)
            self._refused.discard(tx.nonce)
            self._rejected.add(tx.nonce)
            self._blocked[tx.nonce] = reason

    def is_rejected(self, tx: OpenTransaction) -> bool:
        return tx.nonce in self._rejected

    def rejected(self) -> list[OpenTransaction]:
        return [self._by_nonce[nonce] for nonce in sorted(self._rejected)]

    def block(self, tx: OpenTransaction, reason: str) -> None:
        """Record why the nonce of rejected bytes cannot be freed yet."""
        self._blocked[tx.nonce] = reason

    @property
    def blocked_reason(self) -> str | None:
        """Why a rejected nonce is not freed yet; everything signed after it would wait for it."""
        return next(iter(self._blocked.values()), None)

    @property
    def held_reason(self) -> str | None:
        """Why no transaction in flight can be mined now, so that new ones would only queue up."""
        return self._held_reason

    def hold(self, reason: str | None) -> None:
        self._held_reason = reason

    # Attempts

    def add_replacement(self, tx: OpenTransaction, newest: Attempt) -> None:
        """Record a stored attempt as the newest one, due for publication."""
        current = self._by_nonce.get(tx.nonce, tx)
        cancellations = (newest.hash,) if newest.is_cancellation else ()
        self._put(
            replace(
                current,
                fees=newest.fees,
                hashes=(newest.hash, *tx.hashes),
                raw=newest.raw,
                cancellations=(*cancellations, *current.cancellations),
            )
        )
        self._due[tx.nonce] = None
        self._forget_refusals(tx.nonce)
        self._set_gauges()

    def add_cancellation(self, tx: OpenTransaction, after: Transaction, newest: Attempt) -> None:
        """Record a stored self-transfer as the newest attempt; the call may still be mined."""
        current = self._by_nonce.get(tx.nonce, tx)
        self._put(replace(current, tx=after, call_wei=current.max_cost_wei))
        self.add_replacement(tx, newest)

    def _is_newest(self, tx: OpenTransaction) -> bool:
        """False for bytes that were replaced while they were on their way to the node."""
        current = self._by_nonce.get(tx.nonce)
        return current is None or current.hashes == tx.hashes

    # States

    def mark_published(self, tx: OpenTransaction) -> None:
        """Record that a node holds the bytes; `run` later saves this and announces the hash."""
        self._to_mark.append(tx)
        self._marks.notify()
        if self._is_newest(tx):
            self._due.pop(tx.nonce, None)
            self._forget_refusals(tx.nonce)
        current = self._by_nonce.get(tx.nonce)
        if current is not None:
            if current.tx.state is State.SIGNED:
                self._observe_age(current, State.PUBLISHED)
                self._steps.published(current)
            accepted, _ = advance(current.tx, Accepted())
            self._put(replace(current, tx=accepted))

    async def run(self) -> None:
        """Save publications in the background, until cancelled.

        A crash before the save costs a second publication of the same bytes. A mined transaction's
        attempt is known from its receipt.
        """
        while True:
            await self._marks.wait()
            marked, self._to_mark = self._to_mark, []
            if marked and self._record_after:
                await asyncio.sleep(self._record_after)
                marked = [tx for tx in marked if tx.nonce in self._by_nonce]
            if not marked:
                continue
            async with session(self._pool) as connection:
                await transactions.mark_published(connection, [tx.hashes[0] for tx in marked])
            self._outcomes.on_published(marked)

    async def apply(self, observations: Sequence[tuple[OpenTransaction, Observation]]) -> None:
        """Advance transactions; save them, and the records that wait for them, in one commit.

        A transaction is not settled if its block is no longer final when this commits.
        """
        if not observations:
            return
        async with transaction(self._pool) as connection:
            final = await self._still_final(connection, observations)
            moves, changes = self._advanced(
                (tx, observation)
                for tx, observation in observations
                if not isinstance(observation, Finalized) or tx.id in final
            )
            if not changes:
                return
            await transactions.save(connection, self._lane, moves)
            await self._outcomes.save(connection, changes)
        for tx, effects in changes:
            self._update(tx, effects)
        self._set_gauges()
        self._log(changes)
        self._outcomes.notify(changes)

    async def _still_final(
        self, connection: Connection, observations: Sequence[tuple[OpenTransaction, Observation]]
    ) -> Collection[int]:
        ids = [tx.id for tx, observation in observations if isinstance(observation, Finalized)]
        return await transactions.still_final(connection, self._lane, ids) if ids else ()

    def _advanced(
        self, observations: Iterable[tuple[OpenTransaction, Observation]]
    ) -> tuple[list[tuple[Transaction, OpenTransaction]], list[StateChange]]:
        """The changed transactions as pairs (before, after), and as pairs (after, effects)."""
        moves: list[tuple[Transaction, OpenTransaction]] = []
        changes: list[StateChange] = []
        for tx, observation in observations:
            before = self._by_nonce.get(tx.nonce, tx)
            after, effects = advance(before.tx, observation)
            if after != before.tx:
                changed = replace(before, tx=after)
                moves.append((before.tx, changed))
                changes.append((changed, effects))
        return moves, changes

    def _log(self, changes: Sequence[StateChange]) -> None:
        """Log one line for each new state, with all transactions that reached it."""
        for state in _LOGGED:
            ids = [tx.id for tx, _ in changes if tx.tx.state is state]
            if ids:
                log.info(f"{self._lane.kind}.{state.value}", transactions=ids)

    def _update(self, tx: OpenTransaction, effects: Sequence[Effect]) -> None:
        if tx.tx.state in _IN_FLIGHT:
            self._put(tx)
        else:
            if tx.tx.state is State.MINED:
                self._steps.mined(tx)
            self._steps.forget(tx)
            self._remove(tx.nonce)
            self._due.pop(tx.nonce, None)
            self._forget_refusals(tx.nonce)
        if Effect.PUBLISH in effects:
            self._due[tx.nonce] = None
        self._count_outcome(tx.tx.state)
        self._observe_age(tx, tx.tx.state)
        if Effect.ALERT in effects:
            log.error("transaction.alert", transaction=tx.id, state=tx.tx.state.value)

    def _forget_refusals(self, nonce: int) -> None:
        self._refused.discard(nonce)
        self._rejected.discard(nonce)
        self._blocked.pop(nonce, None)

    def _put(self, tx: OpenTransaction) -> None:
        self._remove(tx.nonce)
        self._by_nonce[tx.nonce] = tx
        self._reserved_wei += tx.max_cost_wei
        self._gas += tx.gas_limit
        self._bytes += len(tx.raw)

    def _remove(self, nonce: int) -> None:
        tx = self._by_nonce.pop(nonce, None)
        if tx is not None:
            self._reserved_wei -= tx.max_cost_wei
            self._gas -= tx.gas_limit
            self._bytes -= len(tx.raw)

    # Metrics

    def _set_gauges(self) -> None:
        lane_gauges.IN_FLIGHT.set(self._lane, len(self._by_nonce))
        lane_gauges.RESERVED_WEI.set(self._lane, self.reserved_wei())

    def _observe_age(self, tx: OpenTransaction, stage: State) -> None:
        _age_histogram(self._lane.kind, stage).observe(tx.age_seconds)

    def _count_outcome(self, state: State) -> None:
        match state:
            case State.CONFIRMED:
                telemetry.TRANSACTIONS_SUCCESS.labels(self._lane.kind).inc()
            case State.REVERTED | State.DISPLACED | State.CANCELLED | State.VOIDED:
                telemetry.TRANSACTIONS_FAILED.labels(self._lane.kind, state.value).inc()
            case State.PUBLISHED:
                telemetry.TRANSACTIONS_DEMOTED.labels(self._lane.kind).inc()


@cache
def _age_histogram(kind: str, stage: State) -> Histogram:
    """Cached: every transaction makes two observations, and looking up labels is slow."""
    return telemetry.TRANSACTION_SECONDS.labels(kind, stage.value)
