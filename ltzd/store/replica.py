"""Reads that may be old: they go to a standby while it is fresh, and else to the primary.

`[database] replica_url` leads to a streaming standby. Only reads by which nobody pays or decides
come here (docs/decisions/0043). Each read makes sure that its connection leads to the server whose
age is known: behind one address there may be several standbys. A standby that fails, stands still,
lags or is promoted costs a few callers a short wait, and none of them the answer. The standby is
asked again once `check` finds it usable.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

import asyncpg
import msgspec
import structlog

from ltzd import telemetry
from ltzd.concurrency.answer_age import note_age
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import DatabaseUnavailable
from ltzd.rules.replica_age import ReplayProgress
from ltzd.store.database import Connection, Pool, session

log = structlog.get_logger()

_CHECK_PAUSE_SECONDS = 1.0
_CHECK_SECONDS = 2.0
_READ_SECONDS = 1.0
"""A read that the standby has not answered in this time goes to the primary."""
_FROM_STANDBY = telemetry.REPLICA_READS.labels("standby")
_FROM_PRIMARY = telemetry.REPLICA_READS.labels("primary")

Answer = TypeVar("Answer")


class NotReplicated(Exception):
    """A standby lacks a row that the primary has: the primary is to be asked."""


class _Unusable(Exception):
    """The reason why the standby is not used, as a clause."""


class _Behind(_Unusable):
    """The standby has replayed nothing that is recent enough."""


class _LogPosition(msgspec.Struct, frozen=True):
    """A server, and its place in the log: the end of the primary's, or what a standby replayed.

    Positions of two timelines tell nothing about each other. A standby's timeline is the newest one
    that the server is known to have reached: with the rights of `pg_monitor` the one that it
    receives now, otherwise that of its last restartpoint. `started` differs between the copies of
    a server; a standby that has crashed may return with an earlier position.
    """

    system: str
    database: str
    started: datetime
    timeline: int
    position: int


class ReplicaReads:
    """Reads from the standby if its answers are at most `most_seconds` old, else from the primary.

    Without a standby every read goes to the primary, and `run` is not needed.
    """

    def __init__(
        self,
        primary: Pool,
        standby: Pool | None = None,
        *,
        most_seconds: float = 10.0,
        clock: Clock = loop_time,
    ) -> None:
        self._primary = primary
        self._standby = standby
        self._clock = clock
        self._progress = ReplayProgress(most_seconds)
        self._known_server: datetime | None = None
        """The start of the standby that `_progress` is about."""
        self._reason: str | None = "it has not been asked yet"
        self._unused_since: float | None = None
        self._first_check_at: float | None = None
        self._is_judged = False
        """Whether a check has found the standby usable or unusable."""
        self._reads: set[asyncio.Task[object]] = set()

    @property
    def unused(self) -> tuple[float, str] | None:
        """The seconds for which the standby has not been used, and why, or None if it is used."""
        if self._unused_since is None or self._reason is None:
            return None
        return self._clock() - self._unused_since, self._reason

    async def read(self, ask: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """Return what `ask` reads. `answer_age` then has the age of an answer of the standby.

        `ask` must write nothing, and may be called twice. Raises DatabaseUnavailable if the primary
        is asked and does not answer.
        """
        age = self._age()
        if self._standby is not None and age is not None:
            begun_at = self._clock()
            try:
                answer = await self._ask_standby(self._standby, ask)
            except _Unusable as error:
                log.debug("replica.read_failed", reason=str(error))
            else:
                _FROM_STANDBY.inc()
                note_age(age + self._clock() - begun_at)
                return answer
        if self._standby is not None:
            _FROM_PRIMARY.inc()
        async with session(self._primary) as connection:
            return await ask(connection)

    async def run(self, standby: Pool) -> None:
        """Check both servers every second, until cancelled."""
        while True:
            await self.check(standby)
            await asyncio.sleep(_CHECK_PAUSE_SECONDS)

    async def check(self, standby: Pool) -> None:
        """Learn how far the standby is, and whether it may be used."""
        if self._first_check_at is None:
            self._first_check_at = self._clock()
        try:
            await self._compare(standby)
        except _Behind as error:
            # A standby has not replayed what the primary wrote a moment before the first check.
            age = self._clock() - self._first_check_at
            if self._is_judged or age > self._progress.most_seconds:
                self._fail(str(error))
        except _Unusable as error:
            self._fail(str(error))
        else:
            self._use()
        telemetry.REPLICA_AGE.set(self._age() or 0.0)
        telemetry.REPLICA_UNUSED.set(self._reason is not None)

    async def _compare(self, standby: Pool) -> None:
        """Raises _Unusable."""
        asked_at = self._clock()
        primary = await _position_of(self._primary, _PRIMARY)
        self._progress.note(asked_at, primary.position)
        replica = await _position_of(standby, _STANDBY)
        if (replica.system, replica.database) != (primary.system, primary.database):
            self._progress.forget()
            raise _Unusable("it is a standby of another database")
        if replica.timeline != primary.timeline:
            self._progress.forget()
            raise _Unusable(
                f"it is on timeline {replica.timeline}, and the primary on timeline "
                f"{primary.timeline}"
            )
        if replica.started != self._known_server:
            self._progress.forget_replay()
            self._known_server = replica.started
        self._progress.replayed(replica.position)
        if self._progress.age(self._clock()) is None:
            raise _Behind(f"it is more than {self._progress.most_seconds:g} s behind the primary")

    async def _ask_standby(
        self, standby: Pool, ask: Callable[[Connection], Awaitable[Answer]]
    ) -> Answer:
        """Raises _Unusable, also for a standby that does not answer: nobody waits for its end."""
        task = asyncio.create_task(_answer_of(standby, self._known_server, ask))
        self._reads.add(task)
        task.add_done_callback(self._forget)
        try:
            done, _ = await asyncio.wait({task}, timeout=_READ_SECONDS)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            self._fail(f"a read had no answer within {_READ_SECONDS:g} s")
            raise _Unusable("no answer in time")
        try:
            return task.result()
        except NotReplicated as error:
            raise _Unusable(_clause(error)) from error
        except (DatabaseUnavailable, asyncpg.PostgresError) as error:
            if not isinstance(error.__cause__, asyncpg.SerializationError):
                self._fail(_clause(error))
            # Otherwise the standby had to choose between this read and what it replays.
            raise _Unusable(_clause(error)) from error

    def _forget(self, task: "asyncio.Task[object]") -> None:
        self._reads.discard(task)
        if not task.cancelled():
            task.exception()  # so that asyncio does not report it as lost

    def _age(self) -> float | None:
        return None if self._reason is not None else self._progress.age(self._clock())

    def _use(self) -> None:
        if self._unused_since is not None:
            log.info("replica.used", after_seconds=round(self._clock() - self._unused_since, 1))
        self._reason = self._unused_since = None
        self._is_judged = True

    def _fail(self, reason: str) -> None:
        if self._unused_since is None:
            self._unused_since = self._clock()
            log.warning("replica.unused", reason=reason)
        self._reason = reason
        self._is_judged = True


async def _answer_of(
    standby: Pool, known: datetime | None, ask: Callable[[Connection], Awaitable[Answer]]
) -> Answer:
    """Raises _Unusable if the connection does not lead to the known standby."""
    async with session(standby) as connection:
        if await connection.fetchval(_STARTED) != known:
            raise _Unusable("the connection leads to another server")
        return await ask(connection)


_STARTED = "SELECT pg_postmaster_start_time() WHERE pg_is_in_recovery()"
_PRIMARY = """
SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint AS position, current_database()::text AS name,
       pg_postmaster_start_time() AS started,
       (SELECT system_identifier::text FROM pg_control_system()) AS system,
       ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int AS timeline
 WHERE NOT pg_is_in_recovery()
"""
_STANDBY = """
SELECT (pg_last_wal_replay_lsn() - '0/0')::bigint AS position, current_database()::text AS name,
       pg_postmaster_start_time() AS started,
       (SELECT system_identifier::text FROM pg_control_system()) AS system,
       greatest((SELECT timeline_id FROM pg_control_checkpoint()),
                (SELECT min_recovery_end_timeline FROM pg_control_recovery()),
                (SELECT received_tli FROM pg_stat_wal_receiver)) AS timeline
 WHERE pg_is_in_recovery()
"""


async def _position_of(pool: Pool, question: str) -> _LogPosition:
    """Raises _Unusable."""
    server = "the primary" if question == _PRIMARY else "it"
    try:
        async with asyncio.timeout(_CHECK_SECONDS), session(pool) as connection:
            row = await connection.fetchrow(question)
    except (DatabaseUnavailable, TimeoutError, asyncpg.PostgresError) as error:
        raise _Unusable(f"{server} does not answer: {_clause(error)}") from error
    if row is None:
        raise _Unusable(f"{server} is {'a standby' if server == 'the primary' else 'no standby'}")
    return _LogPosition(
        row["system"], row["name"], row["started"], row["timeline"], row["position"]
    )


def _clause(error: BaseException) -> str:
    return (str(error) or f"no answer within {_CHECK_SECONDS:g} s").rstrip(".")
