"""Writes events in groups: reads how their claims stand, decides, commits what still stands so.

A database that is lost on the way may have written; its events are decided again once it is back,
and their claims tell.
"""

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from uuid import UUID

from ltzd.actions.event_handler.batch_decision import (
    WRITTEN,
    PreparedEvent,
    Written,
    decide_all,
    outcomes_of,
)
from ltzd.concurrency.batch_writer import RETRY, BatchWriter, Retry
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import DatabaseUnavailable
from ltzd.store.database import Pool, session
from ltzd.store.event_handler import events
from ltzd.store.event_handler.events import ClaimKey, ClaimSnapshot, InsertedEvent, NewEvent
from ltzd.store.users.users import User
from ltzd.store.wakeups import REWARDS, WakeupHub
from ltzd.values import Address

_UNSURE_SECONDS = 5.0
"""How long a caller whose write may have happened waits for the database to come back."""
_UNSURE_PAUSE_SECONDS = 0.2


class EventWriter:
    def __init__(
        self,
        pool: Pool,
        wakeups: WakeupHub,
        known: MutableMapping[str, User],
        clock: Clock = loop_time,
    ) -> None:
        """`known` are users who have rows, by e-mail key; those who come are added."""
        self._pool = pool
        self._wakeups = wakeups
        self._known = known
        self._clock = clock
        self._unsure: dict[UUID, float] = {}
        self._commits = BatchWriter[PreparedEvent, Written](self._write, "event", clock=clock)

    async def run(self) -> None:
        """Commit what `write` gathers, until cancelled."""
        await self._commits.run()

    async def write(self, claim: PreparedEvent) -> Written:
        """After the commit that holds it. Raises the narrowest Refused, or Unavailable.

        Claims are decided in the order in which this was called.
        """
        return await self._commits.submit(claim)

    async def _write(self, group: Sequence[PreparedEvent]) -> list[Written | Exception | Retry]:
        """Decide a group on how things stand, in order, and write what still stands so."""
        try:
            standing = await self._standing(group)
        except DatabaseUnavailable as error:
            return await self._hold_unsure(group, [RETRY] * len(group), error)
        verdicts = decide_all(group, standing, self._known)
        accepted = [new for new in verdicts if isinstance(new, NewEvent)]
        found = [one.event.id for one, v in zip(group, verdicts, strict=True) if v is WRITTEN]
        try:
            given = await self._given(found)
            won = await self._commit(accepted)
        except DatabaseUnavailable as error:
            return await self._hold_unsure(group, outcomes_of(group, verdicts, {}, {}), error)
        if accepted and not won and len(group) > 1:
            # One of them met a limit that others have just used up; it must not stop the rest.
            return [outcome for one in group for outcome in await self._write([one])]
        self._learn(group, won)
        if won:
            self._wakeups.notify(REWARDS)
        outcomes = outcomes_of(group, verdicts, won, given)
        for one, outcome in zip(group, outcomes, strict=True):
            if not isinstance(outcome, Retry):
                self._unsure.pop(one.event.id, None)
        return outcomes

    async def _standing(self, group: Sequence[PreparedEvent]) -> ClaimSnapshot:
        async with session(self._pool) as connection:
            return await events.read_snapshot(connection, [one.check.wanted() for one in group])

    def _learn(self, group: Sequence[PreparedEvent], won: Mapping[ClaimKey, InsertedEvent]) -> None:
        """Users as their rows say: they may have followed their owners to other wallets."""
        for one in group:
            written = won.get(one.check.key)
            if written is not None:
                user = replace(one.user, id=written.user_id, wallet=written.wallet)
                self._known[user.email_key] = user

    async def _given(self, found: Sequence[UUID]) -> dict[UUID, Address]:
        """The wallets of rewards that an earlier attempt has written."""
        if not found:
            return {}
        async with session(self._pool) as connection:
            return await events.reward_wallets(connection, found)

    async def _commit(self, accepted: Sequence[NewEvent]) -> dict[ClaimKey, InsertedEvent]:
        """What was won. Raises DatabaseUnavailable; its events are unsure until decided again."""
        if not accepted:
            return {}
        try:
            async with session(self._pool) as connection:
                return await events.insert(connection, accepted)
        except DatabaseUnavailable:
            deadline = self._clock() + _UNSURE_SECONDS
            for new in accepted:
                self._unsure.setdefault(new.event.id, deadline)
            raise

    async def _hold_unsure(
        self,
        group: Sequence[PreparedEvent],
        outcomes: Sequence[Written | Exception | Retry],
        error: DatabaseUnavailable,
    ) -> list[Written | Exception | Retry]:
        """While the database is away, or takes no writes: of those without an outcome, try again
        for whom it may have written, and refuse the others."""
        await asyncio.sleep(_UNSURE_PAUSE_SECONDS)
        now = self._clock()
        held: list[Written | Exception | Retry] = []
        for one, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Retry) and self._unsure.get(one.event.id, now) > now:
                held.append(RETRY)
            else:
                self._unsure.pop(one.event.id, None)
                held.append(error if isinstance(outcome, Retry) else outcome)
        return held
