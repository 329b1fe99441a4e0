"""Commits events in batches: reads their claims, decides, and inserts what is accepted.

Two batches are committed at a time, since only events of one claim depend on each other. Events
that share a limit with other users' events are the exception: of two batches at once, one would
meet the limit that the other has used up. So they go one batch after the other.

If the database is lost during a write, the events may have been written. Once it is back, those
that are not stored are decided again.
"""

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from uuid import UUID

import structlog
from msgspec.structs import replace

from ltzd import tracing
from ltzd.actions.event_handler.batch_decision import (
    INSERTED,
    Decision,
    PreparedEvent,
    RecordedEvent,
    decide_all,
    outcomes_of,
)
from ltzd.actions.event_handler.policy import DEFAULT_POLICY, EventPolicy
from ltzd.concurrency.batch_writer import RETRY, BatchWriter, Retry
from ltzd.concurrency.clock import loop_time
from ltzd.errors import DatabaseUnavailable, Unavailable
from ltzd.store.database import Pool, session
from ltzd.store.event_handler import events
from ltzd.store.event_handler.events import ClaimKey, ClaimSnapshot, EventRow, NewEvent
from ltzd.store.users import users
from ltzd.store.users.users import User
from ltzd.store.wakeups import REWARDS, WakeupHub
from ltzd.values import Address

log = structlog.get_logger()

Outcome = RecordedEvent | Exception | Retry

_WIDTH = 2
"""How many batches of independent events are committed at a time."""


class AddressErased(Unavailable):
    """The known user's address was erased after the event was prepared: prepare it again."""


class EventWriter:
    """`known` holds users with rows, by e-mail key; the writer adds the users it inserts."""

    def __init__(
        self,
        pool: Pool,
        wakeups: WakeupHub,
        known: MutableMapping[str, User],
        policy: EventPolicy = DEFAULT_POLICY,
    ) -> None:
        self._policy = policy
        self._pool = pool
        self._wakeups = wakeups
        self._known = known
        self._unknown_outcomes: dict[UUID, float] = {}
        self._independent = BatchWriter[PreparedEvent, RecordedEvent](
            self._write,
            "event",
            key_of=lambda prepared: prepared.check.key,
            width=_WIDTH,
            max_batch=policy.max_batch,
        )
        self._limited = BatchWriter[PreparedEvent, RecordedEvent](
            self._write, "event", max_batch=policy.max_batch
        )

    async def run(self) -> None:
        """Commit what `write` is called with, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._independent.run())
            group.create_task(self._limited.run())

    async def write(self, prepared: PreparedEvent) -> RecordedEvent:
        """Return after the commit that holds the event. Raises the narrowest Refused, Unavailable.

        Events of one claim, and events that share a limit, are decided in the order in which this
        was called.
        """
        writer = self._limited if prepared.check.shares_a_limit() else self._independent
        return await writer.submit(prepared)

    async def _write(self, batch: Sequence[PreparedEvent]) -> list[Outcome]:
        begun_at = tracing.now()
        try:
            snapshot = await self._read_snapshot(batch)
            recorded = await self._read_recorded(batch)
        except DatabaseUnavailable as error:
            return await self._await_database(batch, [RETRY] * len(batch), error)
        decisions = decide_all(batch, snapshot, self._known, recorded)
        accepted = [decision for decision in decisions if isinstance(decision, NewEvent)]
        already_inserted = [
            prepared.event.id
            for prepared, decision in zip(batch, decisions, strict=True)
            if decision is INSERTED
        ]
        try:
            reward_wallets = await self._read_reward_wallets(already_inserted)
            inserted = await self._insert(accepted)
        except DatabaseUnavailable as error:
            return await self._await_database(batch, outcomes_of(batch, decisions, {}, {}), error)
        if accepted and not inserted and len(batch) > 1:
            # One event met a limit that another process has used up; it must not stop the rest.
            return [outcome for prepared in batch for outcome in await self._write([prepared])]
        erased = await self._erased_since(batch, decisions, inserted)
        self._remember_users(batch, inserted)
        if any(event.ltz for event in inserted.values()):
            self._wakeups.announce(REWARDS)
        outcomes = outcomes_of(batch, decisions, inserted, reward_wallets)
        if erased:
            outcomes = [
                AddressErased("The user's address was erased")
                if prepared.user.email_key in erased and not isinstance(outcome, RecordedEvent)
                else outcome
                for prepared, outcome in zip(batch, outcomes, strict=True)
            ]
        _report_recorded(batch, outcomes, begun_at)
        for prepared, outcome in zip(batch, outcomes, strict=True):
            if not isinstance(outcome, Retry):
                self._unknown_outcomes.pop(prepared.event.id, None)
        return outcomes

    async def _read_snapshot(self, batch: Sequence[PreparedEvent]) -> ClaimSnapshot:
        async with session(self._pool) as connection:
            return await events.read_snapshot(
                connection, [prepared.check.query() for prepared in batch]
            )

    async def _read_recorded(self, batch: Sequence[PreparedEvent]) -> set[UUID]:
        """Read which events of the batch with an unknown outcome are stored.

        The claims do not tell: another process may have written later events of the same claims.
        Read after the snapshot: an event that is stored in between changes its claim, so that its
        insert is refused and it is decided again.
        """
        ids = {prepared.event.id for prepared in batch} & self._unknown_outcomes.keys()
        if not ids:
            return set()
        async with session(self._pool) as connection:
            return await events.recorded(connection, ids)

    async def _read_reward_wallets(self, ids: Sequence[UUID]) -> dict[UUID, Address]:
        """Read the wallets of rewards that an earlier attempt has inserted."""
        if not ids:
            return {}
        async with session(self._pool) as connection:
            return await events.reward_wallets(connection, ids)

    async def _insert(self, accepted: Sequence[NewEvent]) -> dict[ClaimKey, EventRow]:
        """Raises DatabaseUnavailable; the outcome of these events is unknown then."""
        if not accepted:
            return {}
        try:
            async with session(self._pool) as connection:
                return await events.insert(connection, accepted)
        except DatabaseUnavailable:
            deadline = loop_time() + self._policy.unknown_outcome
            for new in accepted:
                self._unknown_outcomes.setdefault(new.event.id, deadline)
            raise

    async def _erased_since(
        self,
        batch: Sequence[PreparedEvent],
        decisions: Sequence[Decision],
        inserted: Mapping[ClaimKey, EventRow],
    ) -> set[str]:
        """Read the keys of known users whose events were left out and who have no row any more."""
        left_out = {
            prepared.user.email_key
            for prepared, decision in zip(batch, decisions, strict=True)
            if isinstance(decision, NewEvent)
            and decision.key not in inserted
            and prepared.is_known_user
        }
        if left_out:
            # Without an answer the events are decided again, and left out again.
            with suppress(DatabaseUnavailable):
                async with session(self._pool) as connection:
                    return await users.without_rows(connection, left_out)
        return set()

    def _remember_users(
        self, batch: Sequence[PreparedEvent], inserted: Mapping[ClaimKey, EventRow]
    ) -> None:
        """Cache users as their rows say: their wallets may have changed since they were read.

        A known user whose row is unchanged was cached before.
        """
        for prepared in batch:
            row, user = inserted.get(prepared.check.key), prepared.user
            if row is None:
                continue
            if prepared.is_known_user and (row.user_id, row.wallet) == (user.id, user.wallet):
                continue
            self._known[user.email_key] = replace(user, id=row.user_id, wallet=row.wallet)

    async def _await_database(
        self,
        batch: Sequence[PreparedEvent],
        outcomes: Sequence[Outcome],
        error: DatabaseUnavailable,
    ) -> list[Outcome]:
        """Pause, then retry the events that may have been written and refuse the others."""
        await asyncio.sleep(self._policy.unknown_outcome_pause)
        now = loop_time()
        final: list[Outcome] = []
        for prepared, outcome in zip(batch, outcomes, strict=True):
            event_id = prepared.event.id
            if isinstance(outcome, Retry) and self._unknown_outcomes.get(event_id, now) > now:
                final.append(RETRY)
            else:
                self._unknown_outcomes.pop(event_id, None)
                final.append(error if isinstance(outcome, Retry) else outcome)
        return final


def _report_recorded(
    batch: Sequence[PreparedEvent], outcomes: Sequence[Outcome], begun_at: int
) -> None:
    """One line for each commit, with the request of each event: a line each would take longer."""
    recorded = [
        prepared
        for prepared, outcome in zip(batch, outcomes, strict=True)
        if isinstance(outcome, RecordedEvent)
    ]
    if recorded:
        pairs = [(str(prepared.event.id), prepared.request_id) for prepared in recorded]
        log.info("events.written", events=pairs)
        ids = [prepared.event.id for prepared in recorded]
        tracing.step("database commit", ids, begun_at, {"ltzd.batch_size": len(batch)})
