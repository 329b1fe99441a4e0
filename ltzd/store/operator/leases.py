"""Leases: which process serves a lane, follows the chain, or does a periodic job (decision 0031).

All leases of a process are renewed by one statement on one connection of their own. Another process
takes a lease that was not renewed for `LeasePolicy.length`, or whose holder's session PostgreSQL
has ended, which it notices at once after a kill or a restart. A holder that cannot renew ends its
term before that. A holder that was frozen meanwhile cannot: the epochs of lanes and chains refuse
its writes.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.outages import Outage
from ltzd.errors import DatabaseUnavailable, LaneLost, Misconfigured
from ltzd.store import database, stuck_sessions
from ltzd.store.connection_errors import reason_of
from ltzd.store.database import Connection
from ltzd.store.wakeups import Wakeup
from ltzd.values import Address, hex_of

log = structlog.get_logger()

FREED = "ltzd_leases"
"""The channel on which a holder tells at the end of its term that a lease is free."""
CHAT_RECHECK = "chat_recheck"

_SETTINGS = {"synchronous_commit": "off"}
"""A renewal waits for no disk. A crash of the server that loses it ends the session, too."""
_CONNECTION_ERRORS: tuple[type[BaseException], ...] = (DatabaseUnavailable, *database.LOST)


def lane_lease(chain_id: int, wallet: Address) -> str:
    return f"lane/{chain_id}/{hex_of(wallet)}"


def lane_lease_sql(alias: str) -> str:
    """`lane_lease` in SQL, of a row that has `chain_id` and `wallet`."""
    return f"'lane/' || {alias}.chain_id || '/0x' || encode({alias}.wallet, 'hex')"


def indexer_lease(chain_id: int) -> str:
    return f"indexer/{chain_id}"


def rebuild_lease(chain_id: int) -> str:
    return f"rebuild/{chain_id}"


class LeaseFacts(msgspec.Struct, frozen=True):
    """A lease's row. `process` is the host's name and the process id of its holder."""

    name: str
    process: str
    held_seconds: float
    renewed_seconds_ago: float
    is_held: bool = True
    """False once the lease may be taken, since its holder has not renewed it."""


async def list_all(connection: Connection) -> tuple[LeaseFacts, ...]:
    """All leases in the order of their names, lapsed ones included."""
    rows = await connection.fetch(
        """
        SELECT name, process,
               extract(epoch FROM clock_timestamp() - taken_at)::float8,
               greatest(0, extract(epoch FROM clock_timestamp() - renewed_at))::float8,
               expires_at > clock_timestamp()
          FROM leases
         ORDER BY name
        """
    )
    return tuple(LeaseFacts(*row) for row in rows)


class LeasePolicy(msgspec.Struct, frozen=True):
    """The times of leases. Units: seconds.

    A lease that is not renewed for `length` may be taken; its holder ends the term `margin` before
    that. `renewal` passes between two renewals, `retry` between two attempts to take a lease.
    A connection that does not answer for `answer`, or for `connect` while no lease is held, is
    replaced by another one, which must be open after `connect`. The end of a term waits up to
    `ending` until the lease is freed.
    """

    length: float = 3.0
    margin: float = 0.5
    renewal: float = 0.75
    retry: float = 0.25
    answer: float = 0.75
    connect: float = 2.0
    ending: float = 1.0


class LeaseTerm:
    """The time during which this process holds a lease; `lost` is set if it ends too early."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.holder = uuid4()
        self.lost = asyncio.Event()
        self.is_begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_freed = asyncio.Event()
        self.renewed_at = 0.0
        """When the last successful renewal was sent, on the event loop's clock."""
        self.connection: Connection | None = None
        """The connection whose session the lease's row names."""
        self._block: asyncio.Timeout | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def kind(self) -> str:
        return self.name.partition("/")[0]

    def renew(self, connection: Connection, sent_at: float, seconds: float) -> None:
        """The term lasts until `seconds` after `sent_at`, unless it is renewed again."""
        self.stop_clock()
        self.connection, self.renewed_at = connection, sent_at
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_at(sent_at + seconds, self.lose, "it could not be renewed")

    def lose(self, reason: str) -> None:
        """End the term, and cancel the block that runs in it."""
        self.stop_clock()
        if self.lost.is_set():
            return
        self.lost.set()
        telemetry.LEASES_LOST.labels(self.kind).inc()
        log.warning("lease.lost", lease=self.name, reason=reason)
        if self._block is not None:
            self._block.reschedule(loop_time())

    def stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    @asynccontextmanager
    async def cancelling(self) -> AsyncIterator[None]:
        """Cancel the block when the term is lost, and raise LaneLost then."""
        try:
            async with asyncio.timeout(0 if self.lost.is_set() else None) as block:
                self._block = block
                try:
                    yield
                finally:
                    self._block = None
        except TimeoutError:
            if not block.expired():
                raise
            raise LaneLost(f"The lease {self.name} is lost") from None


class Leases:
    """The leases of one process.

    The connection is open while a term lasts or a lease is waited for. If it closes, all terms end:
    PostgreSQL has ended the session, so another process may take the leases. If it only does not
    answer, it is replaced, and the terms go on if that succeeds before they have to end.
    """

    def __init__(self, url: str, policy: LeasePolicy | None = None) -> None:
        self._url = url
        self._policy = policy or LeasePolicy()
        self._waiting: list[LeaseTerm] = []
        self._held: list[LeaseTerm] = []
        self._ended: list[LeaseTerm] = []
        """Terms whose lease is not freed yet."""
        self._silent: list[Connection] = []
        """Connections that did not answer, as long as a lease's row names their session."""
        self._due = Wakeup()
        self._renewal_due = self._search_due = 0.0
        self._unchanged: dict[str, tuple[datetime, float]] = {}
        """By the name of a lease that is waited for: its last known renewal, and when that was
        first seen."""
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage("leases.connection_lost", "leases.connection_back")

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[LeaseTerm]:
        """Wait for the lease called `name`, and hold it to the end of the block.

        The block is cancelled when the lease is lost, and LaneLost is raised. Raises
        DatabaseUnavailable if the database is lost during the wait.
        """
        term = LeaseTerm(name)
        self._waiting.append(term)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        self._due.notify()
        try:
            await term.is_begun
            async with term.cancelling():
                yield term
        finally:
            await self._end(term)

    async def _end(self, term: LeaseTerm) -> None:
        """Free the lease, and close the connection after the last one."""
        term.stop_clock()
        if term in self._waiting:
            self._waiting.remove(term)
        is_held = term in self._held
        if is_held:
            self._held.remove(term)
            self._ended.append(term)
        self._drop_silent()
        self._due.notify()
        try:
            async with asyncio.timeout(self._policy.ending):
                if is_held and not term.lost.is_set():
                    await term.is_freed.wait()
                if self._task is not None and not self._is_needed():
                    await asyncio.wait({self._task})
        except TimeoutError:
            log.warning("lease.not_freed", lease=term.name)

    def _is_needed(self) -> bool:
        return bool(self._waiting or self._held or self._ended)

    async def _run(self) -> None:
        """Renew, take and free leases as long as there are any."""
        try:
            while self._is_needed():
                try:
                    await self._keep_connected()
                except _CONNECTION_ERRORS as error:
                    self._outage.failed(reason_of(error))
                    self._refuse_waiting(error)
                    if self._held:
                        await asyncio.sleep(self._policy.retry)
        except BaseException as error:
            self._refuse_waiting(error)
            for term in list(self._held):
                term.lose(f"an error: {type(error).__name__}")
            raise

    def _refuse_waiting(self, error: BaseException) -> None:
        """Pass the error to the callers that wait; nothing can be freed either."""
        waiting, self._waiting = self._waiting, []
        for term in waiting:
            if not term.is_begun.done():
                is_lost = isinstance(error, _CONNECTION_ERRORS)
                reason = f"The database was lost: {reason_of(error)}"
                term.is_begun.set_exception(DatabaseUnavailable(reason) if is_lost else error)
        ended, self._ended = self._ended, []
        for term in ended:
            term.is_freed.set()

    def _on_closed(self, connection: Connection) -> None:
        for term in list(self._held):
            if term.connection is connection:
                term.lose("its database session has ended")
        self._due.notify()

    def _drop_silent(self) -> None:
        named = [term.connection for term in self._held]
        for connection in [each for each in self._silent if each not in named]:
            self._silent.remove(connection)
            connection.terminate()

    async def _keep_connected(self) -> None:
        policy = self._policy
        connection = await _connect(self._url, policy.connect)
        connection.add_termination_listener(lambda _: self._on_closed(connection))
        try:
            async with asyncio.timeout(policy.connect):
                session = await _session(connection)
                await connection.add_listener(FREED, lambda *_: self._due.notify())
            self._renewal_due = loop_time()
            while self._is_needed():
                async with asyncio.timeout(policy.answer if self._held else policy.connect):
                    await self._free(connection)
                    await self._renew(connection, session)
                    await self._take(connection, session)
                    # A server that takes no writes connects, and refuses a lease.
                    self._outage.over()
                    await self._end_stuck_sessions(connection)
                pause = self._renewal_due - loop_time() if self._held else policy.renewal
                await self._due.wait(max(0.0, min(pause, policy.retry) if self._waiting else pause))
        except BaseException:
            self._silent.append(connection)
            self._drop_silent()
            raise
        try:
            await connection.close(timeout=policy.ending)
        except database.LOST:
            connection.terminate()

    async def _free(self, connection: Connection) -> None:
        ended = list(self._ended)
        if not ended:
            return
        await connection.execute(
            """
            WITH ended AS (
              DELETE FROM leases
               USING unnest($1::text[], $2::uuid[]) AS mine (name, holder)
               WHERE leases.name = mine.name AND leases.holder = mine.holder
            )
            SELECT pg_notify($3, '')
            """,
            [term.name for term in ended],
            [term.holder for term in ended],
            FREED,
        )
        for term in ended:
            self._ended.remove(term)
            term.is_freed.set()

    async def _renew(self, connection: Connection, session: "_Session") -> None:
        now, policy = loop_time(), self._policy
        if not self._held or now < self._renewal_due:
            return
        held = list(self._held)
        # A row that somebody has locked is skipped: it must not hold up the other renewals.
        rows = await connection.fetch(
            """
            WITH mine AS MATERIALIZED (
              SELECT leases.name
                FROM leases
                JOIN unnest($1::text[], $2::uuid[]) AS given (name, holder) USING (name, holder)
               ORDER BY leases.name
                 FOR UPDATE OF leases SKIP LOCKED
            )
            UPDATE leases
               SET pid = $3, backend_start = $4,
                   renewed_at = clock_timestamp(), expires_at = clock_timestamp() + $5::interval
              FROM mine
             WHERE leases.name = mine.name
         RETURNING leases.name
            """,
            [term.name for term in held],
            [term.holder for term in held],
            session.pid,
            session.backend_start,
            timedelta(seconds=policy.length),
        )
        self._renewal_due = now + policy.renewal
        renewed = {row[0] for row in rows}
        missing = [term for term in held if term.name not in renewed]
        holders = await _holders(connection, missing) if missing else {}
        for term in held:
            if term.name in renewed:
                is_late = loop_time() - term.renewed_at > 2 * policy.renewal
                telemetry.LEASE_RENEWALS.labels("late" if is_late else "in_time").inc()
                if not term.lost.is_set() and term in self._held:
                    term.renew(connection, now, policy.length - policy.margin)
            elif holders.get(term.name) != term.holder:
                term.lose("another process has taken it")
        self._drop_silent()

    async def _take(self, connection: Connection, session: "_Session") -> None:
        taken_here = {term.name for term in (*self._held, *self._ended)}
        # One waiting term for each lease: the first.
        waiting = {term.name: term for term in reversed(self._waiting)}
        waiting = {name: term for name, term in waiting.items() if name not in taken_here}
        if not waiting:
            return
        now, policy = loop_time(), self._policy
        names = sorted(waiting)
        rows = await connection.fetch(
            _TAKE,
            names,
            [waiting[name].holder for name in names],
            [self._long_unchanged(name, now) for name in names],
            f"{socket.gethostname()}/{os.getpid()}",
            session.pid,
            session.backend_start,
            timedelta(seconds=policy.length),
        )
        self._unchanged = {
            name: (renewed_at, self._first_seen(name, renewed_at, now))
            for name, renewed_at in rows
            if renewed_at is not None
        }
        for name, renewed_at in rows:
            if renewed_at is None:
                self._begin(waiting[name], connection, now)

    async def _end_stuck_sessions(self, connection: Connection) -> None:
        """Take the locks from a process that is frozen, as its lease may be taken."""
        if loop_time() < self._search_due:
            return
        self._search_due = loop_time() + self._policy.renewal
        ended = await stuck_sessions.end_stuck(connection)
        if ended:
            telemetry.STUCK_SESSIONS_ENDED.inc(len(ended))
            log.warning("leases.stuck_sessions_ended", sessions=ended)

    def _begin(self, term: LeaseTerm, connection: Connection, sent_at: float) -> None:
        if term not in self._waiting:
            self._ended.append(term)  # the caller has stopped waiting
            self._due.notify()
            return
        self._waiting.remove(term)
        self._held.append(term)
        self._renewal_due = min(self._renewal_due, sent_at + self._policy.renewal)
        term.renew(connection, sent_at, self._policy.length - self._policy.margin)
        log.info("lease.taken", lease=term.name)
        if not term.is_begun.done():
            term.is_begun.set_result(None)

    def _long_unchanged(self, name: str, now: float) -> datetime | None:
        """The lease's last renewal, if this process has seen none since for the lease's length."""
        if name not in self._unchanged:
            return None
        renewed_at, seen_at = self._unchanged[name]
        return renewed_at if now - seen_at > self._policy.length else None

    def _first_seen(self, name: str, renewed_at: datetime, now: float) -> float:
        before = self._unchanged.get(name)
        return now if before is None or before[0] != renewed_at else before[1]


# A lease is free if its time is over, if its holder's session has ended, or if this process has
# seen no renewal for its length: the database's clock may have been set back. PostgreSQL hides the
# start of sessions of other users.
_TAKE = """
WITH wanted AS (
  SELECT *
    FROM unnest($1::text[], $2::uuid[], $3::timestamptz[])
         AS given (name, holder, unchanged)
), free AS MATERIALIZED (
  SELECT leases.name, wanted.holder
    FROM leases
    JOIN wanted USING (name)
   WHERE leases.expires_at <= clock_timestamp()
      OR leases.renewed_at = wanted.unchanged
      OR NOT EXISTS (
         SELECT FROM pg_stat_activity AS s
          WHERE s.pid = leases.pid
            AND coalesce(s.backend_start, leases.backend_start) = leases.backend_start)
   ORDER BY leases.name
     FOR UPDATE OF leases SKIP LOCKED
), taken AS (
  UPDATE leases
     SET holder = free.holder, process = $4, pid = $5, backend_start = $6,
         taken_at = clock_timestamp(), renewed_at = clock_timestamp(),
         expires_at = clock_timestamp() + $7::interval
    FROM free
   WHERE leases.name = free.name
RETURNING leases.name
), created AS (
  INSERT INTO leases (name, holder, process, pid, backend_start,
                      taken_at, renewed_at, expires_at)
  SELECT wanted.name, wanted.holder, $4, $5, $6,
         clock_timestamp(), clock_timestamp(), clock_timestamp() + $7::interval
    FROM wanted
   WHERE NOT EXISTS (SELECT FROM leases WHERE leases.name = wanted.name)
   ORDER BY wanted.name
      ON CONFLICT DO NOTHING
RETURNING name
)
SELECT name, NULL::timestamptz FROM taken
 UNION ALL
SELECT name, NULL FROM created
 UNION ALL
SELECT leases.name, leases.renewed_at
  FROM leases
  JOIN wanted USING (name)
 WHERE NOT EXISTS (SELECT FROM taken WHERE taken.name = leases.name)
"""


class _Session(msgspec.Struct, frozen=True):
    """This process's session, by which other processes see whether it has ended."""

    pid: int
    backend_start: datetime


async def _connect(url: str, seconds: float) -> Connection:
    try:
        return await database.connect(url, "leases", seconds=seconds, settings=_SETTINGS)
    except Misconfigured as error:  # the same URL worked at the start
        raise DatabaseUnavailable(error.message) from error


async def _session(connection: Connection) -> _Session:
    # PostgreSQL hides the start of a session from any role but its login, also from the role that
    # ALTER ROLE … SET role gives the session. So for this statement the role is the login.
    row = await connection.fetchrow(
        """
        SELECT activity.pid, activity.backend_start
          FROM (SELECT set_config('role', 'none', true)) AS login (role)
         CROSS JOIN LATERAL pg_stat_get_activity(
                 CASE login.role WHEN 'none' THEN pg_backend_pid() END) AS activity
        """
    )
    return _Session(*row)


async def _holders(connection: Connection, terms: Sequence[LeaseTerm]) -> dict[str, UUID]:
    rows = await connection.fetch(
        "SELECT name, holder FROM leases WHERE name = ANY($1::text[])",
        [term.name for term in terms],
    )
    return dict(rows)
