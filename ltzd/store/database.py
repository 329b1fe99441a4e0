"""A PostgreSQL pool, and the errors of a lost database.

Timestamps are the database's (`now()`, `clock_timestamp()`). No pooled connection keeps session
state, so the pool's reset (a round trip) is off. Leases and LISTEN have connections of their own
(`operator/leases.py`, `wakeups.py`). Each role of a process has a pool of its own
(`role_pools.py`).

Both ends of every TCP connection notice within `_TCP_SECONDS` that the other end's machine is gone.
If a server acknowledges packets but answers no statement, the caller must notice.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Any, TypeAlias

import asyncpg
import asyncpg.protocol
import asyncpg.transaction
import msgspec

from ltzd import telemetry
from ltzd.errors import Broken, DatabaseUnavailable, Misconfigured, NoConnection
from ltzd.rules.database_urls import each_server, session_attributes
from ltzd.store.connection_errors import no_answer, reason_of, refusal_of
from ltzd.store.pooler import PooledSessions, PoolerUrl
from ltzd.store.session_settings import WRITTEN_FOR

Connection: TypeAlias = asyncpg.Connection

_TCP_SECONDS = 5
"""Data without an acknowledgement, or probes of an idle connection without an answer, end a TCP
connection after this time."""
_PROBES = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3}
"""Socket options: seconds of silence before the first probe, between two, and their number."""
_TCP_SETTINGS = {
    "tcp_keepalives_idle": str(_PROBES["TCP_KEEPIDLE"]),
    "tcp_keepalives_interval": str(_PROBES["TCP_KEEPINTVL"]),
    "tcp_keepalives_count": str(_PROBES["TCP_KEEPCNT"]),
    "tcp_user_timeout": str(_TCP_SECONDS * 1000),
}
"""The same at the server's end. PostgreSQL ignores them on UNIX sockets."""

LOST: tuple[type[BaseException], ...] = (
    OSError,
    TimeoutError,
    asyncpg.exceptions.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,
    # An administrator's action: shutdown, crash recovery, a cancelled query.
    asyncpg.OperatorInterventionError,
    # A standby, after a failover.
    asyncpg.ReadOnlySQLTransactionError,
    # A conflict with another transaction: a deadlock, a failed serialization.
    asyncpg.TransactionRollbackError,
    # A refused reconnect: the same URL worked at the start, so it may work again.
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    # A query on a connection that the server has just closed.
    asyncpg.InternalClientError,
    # An upgrade changed a table after its statement was prepared: asyncpg prepares it anew then,
    # but repeats it by itself only outside a database transaction.
    asyncpg.exceptions.InvalidCachedStatementError,
    # The process stood still in the middle of a database transaction.
    asyncpg.IdleInTransactionSessionTimeoutError,
    # An administrator's `lock_timeout` and `transaction_timeout`.
    asyncpg.LockNotAvailableError,
    asyncpg.TransactionTimeoutError,
    # A disk that fails.
    asyncpg.PostgresIOError,
)
"""asyncpg's errors when the server is gone, stopping or full, or asks for a retry."""

_NOT_OPENED = (*LOST, asyncpg.InternalServerError)
"""asyncpg's errors when no session can be opened. A server whose disk is full says XX000, since it
cannot write a file that every new session may have to renew ("could not write init file")."""

_REFUSALS = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    # ALTER DATABASE … ALLOW_CONNECTIONS false
    asyncpg.ObjectNotInPrerequisiteStateError,
    ValueError,
)
"""asyncpg's errors for a malformed URL, for a user or database that is unknown or not granted, and
for a database that takes no connections.
"""

_CONNECT_SECONDS = 10.0
_COMMAND_SECONDS = 30.0
"""A statement without an answer fails after this time."""
_ROLLBACK_SECONDS = 2.0
"""A connection that does not come to rest within this time, after a cancellation, is dropped."""
_STANDBY_SECONDS = 5.0
"""A commit that waits for a synchronous standby for longer waits for one that is away."""
_IDLE_SECONDS = 300.0
"""A pooled connection that is unused for this time is closed."""
_DISK_FULL_SECONDS = 15.0
"""Longer than the pauses of the loops that write, so that a full disk is told without gaps."""
_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""Statements find their rows by key in tables of any size. Each is planned once, since planning
costs as much as running, and no plan scans a table that was small when the plan was made."""


_ARRAYS = {
    "bool": (1000, 16),
    "bytea": (1001, 17),
    "int2": (1005, 21),
    "int4": (1007, 23),
    "int8": (1016, 20),
    "text": (1009, 25),
    "date": (1182, 1082),
    "timestamptz": (1185, 1184),
    "numeric": (1231, 1700),
    "uuid": (2951, 2950),
}
"""The arrays in ltzd's statements: PostgreSQL's constant numbers of the type and of its elements.

asyncpg knows most of PostgreSQL's own types without asking, but not their arrays, about which each
connection would ask its server by a statement so large that PostgreSQL compiles it (`jit`), which
takes seconds of CPU time. asyncpg switches `jit` off for the session first; behind a pooler the
statement may run in another session, so the first events of a process would wait for the compiler.
"""
_ARRAY_TYPES = [
    {
        "oid": array,
        "ns": "pg_catalog",
        "name": f"_{name}",
        "kind": b"b",
        "basetype": None,
        "elemtype": element,
        "elemdelim": ",",
        "range_subtype": None,
        "attrtypoids": None,
        "attrnames": None,
    }
    for name, (array, element) in _ARRAYS.items()
]


def misuse_of(error: BaseException | None, connection: Connection) -> Broken | None:
    """The fault of ltzd behind this error, or None if it has another cause.

    asyncpg has one class for a connection that is closed, and for a call that no connection can
    serve: a wrong number of arguments, or two statements at once. A connection that is still open
    was not lost.
    """
    if not isinstance(error, asyncpg.InterfaceError) or not _is_open(connection):
        return None
    return Broken(f"A database connection was misused: {error.args[0]}")


def _is_open(connection: Connection) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # a lost connection of a pool, which no longer belongs to it
        return False


class _Transaction(asyncpg.transaction.Transaction):  # type: ignore[misc]
    """A database transaction that rolls back in a bounded time.

    A connection that fails to roll back is dropped, which does the same, and the error that ended
    the block is raised. If a cancelled caller got the failure of the rollback instead, a loop that
    is told to end would take it for a lost database and go on.
    """

    __slots__ = ()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await super().__aexit__(kind, error, trace)
            return
        misuse = misuse_of(error, self._connection)
        try:
            async with asyncio.timeout(_ROLLBACK_SECONDS):
                await super().__aexit__(kind, error, trace)
        except LOST:
            self._connection.terminate()
        if misuse is not None:
            raise misuse from error


class _ProbedConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection whose socket notices that the server's machine, or the network, is gone."""

    __slots__ = ()

    def __init__(self, protocol: object, transport: asyncio.Transport, *options: Any) -> None:
        super().__init__(protocol, transport, *options)
        transport_socket = transport.get_extra_info("socket")
        if transport_socket is not None and transport_socket.family != socket.AF_UNIX:
            _probe(transport_socket.fileno())

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False, deferrable: bool = False
    ) -> _Transaction:
        """A READ COMMITTED transaction unless `isolation` is given, or a savepoint inside of one.

        The server's default may be another isolation, with which a decision under a lock would
        miss what the lock's last holder has committed.
        """
        self._check_open()
        if isolation is None and not self.is_in_transaction():
            isolation = "read_committed"
        return _Transaction(self, isolation, readonly, deferrable)


def _probe(descriptor: int) -> None:
    """Set the options on a socket that an event loop owns."""
    tcp = socket.socket(fileno=descriptor)
    try:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        milliseconds = {"TCP_USER_TIMEOUT": _TCP_SECONDS * 1000}
        for option, amount in (_PROBES | milliseconds).items():
            if hasattr(socket, option):  # Linux has them all
                tcp.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), amount)
    finally:
        tcp.detach()


async def _prepare(connection: Connection) -> None:
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        encoder=lambda value: msgspec.json.encode(value).decode(),
        decoder=msgspec.json.decode,
    )
    # Afterwards: a new codec makes asyncpg forget the types of arrays.
    connection.get_settings().register_data_types(_ARRAY_TYPES)


async def _prepare_and_check(
    check: Callable[[Connection], Awaitable[None]], connection: Connection
) -> None:
    await _prepare(connection)
    await check(connection)


async def _leave_as_is(_connection: Connection) -> None:
    """No reset: ltzd leaves no state in a pooled session."""


class _PooledConnection(_ProbedConnection, PooledSessions):
    """A connection to a pooler, whose server sessions change with each transaction."""

    __slots__ = ()


class Pool(asyncpg.Pool):  # type: ignore[misc]
    """Connections up to a bound, which may grow; a caller waits a bounded time for a free one.

    `label` is the metrics' label `pool`. `limit` is the bound.
    """

    __slots__ = (
        "_disk_full",
        "_free",
        "_wait_metric",
        "_waited_seconds",
        "_waits",
        "label",
        "limit",
        "wait_seconds",
    )

    def __init__(
        self, url: str, *, label: str, wait_seconds: float, limit: int, **options: Any
    ) -> None:
        super().__init__(
            url,
            connect=connect_to_any_server,
            max_queries=50_000,
            max_inactive_connection_lifetime=_IDLE_SECONDS,
            loop=None,
            record_class=asyncpg.protocol.Record,
            **options,
        )
        self.label = label
        self.wait_seconds = wait_seconds
        self.limit = limit
        self._free = asyncio.Semaphore(limit)
        self._wait_metric = telemetry.POOL_WAIT_SECONDS.labels(label)
        self._waited_seconds = 0.0
        self._waits = 0
        self._disk_full: tuple[float, str] | None = None

    @property
    def disk_full(self) -> str | None:
        """The server's words for its full disk, until none has come for `_DISK_FULL_SECONDS`."""
        if self._disk_full is None or perf_counter() - self._disk_full[0] > _DISK_FULL_SECONDS:
            return None
        return self._disk_full[1]

    def note(self, error: BaseException) -> None:
        """Remember the error of a statement if it tells of a full disk."""
        if isinstance(error, asyncpg.DiskFullError):
            self._disk_full = perf_counter(), reason_of(error)

    def mean_wait(self) -> float:
        """The mean seconds for a connection since the last call, of waits that have ended."""
        seconds, waits = self._waited_seconds, self._waits
        self._waited_seconds, self._waits = 0.0, 0
        return seconds / waits if waits else 0.0

    def grow(self, limit: int) -> None:
        """Raise the bound to `limit`, but not above the ceiling; a lower one changes nothing."""
        while self.limit < min(limit, self.get_max_size()):
            self.limit += 1
            self._free.release()

    @property
    def in_use(self) -> int:
        """The number of connections that callers hold now."""
        size: int = self.get_size() - self.get_idle_size()
        return size

    async def take(self) -> Connection:
        """Take a connection; the caller returns it with `give_back`.

        Raises NoConnection if none is free in time, or if the server refuses a new one.
        """
        begun = perf_counter()
        try:
            # One bound for both waits: `acquire(timeout=…)` would make a task for each connection.
            async with asyncio.timeout(self.wait_seconds):
                await self._free.acquire()
                try:
                    return await self.acquire()
                except BaseException:
                    self._free.release()
                    raise
        except TimeoutError as error:
            telemetry.POOL_TIMEOUTS.labels(self.label).inc()
            raise NoConnection(
                f"No database connection became free within {self.wait_seconds:g} s"
            ) from error
        except (*_NOT_OPENED, *_REFUSALS) as error:  # the same URL worked at the start
            self.note(error)
            raise NoConnection(f"The database was lost: {reason_of(error)}") from error
        finally:
            seconds = perf_counter() - begun
            self._waited_seconds += seconds
            self._waits += 1
            self._wait_metric.observe(seconds)

    async def give_back(self, connection: Connection) -> None:
        """Return a connection of `take`, or drop one that does not come to rest in time.

        A connection at rest returns at once. `release` shields each return by a task of its own,
        for which the event loop passes twice: longer than the statement itself on a busy loop.
        """
        try:
            # The error of the caller, who may have cancelled a statement, must stay.
            with suppress(*LOST):
                if _is_at_rest(connection):
                    connection._con._on_release()  # noqa: SLF001 - as `release` does
                    await connection._holder.release(None)  # noqa: SLF001
                else:
                    await self.release(connection, timeout=_ROLLBACK_SECONDS)
        finally:
            self._free.release()


def _is_at_rest(connection: Connection) -> bool:
    """Whether a pooled connection is open, outside a transaction, and cancels no statement."""
    is_open = not connection.is_closed() and not connection.is_in_transaction()
    return is_open and not connection._con._protocol._is_cancelling()  # noqa: SLF001


async def open_pool(
    url: str,
    *,
    name: str = "ltzd",
    size: int = 10,
    ceiling: int | None = None,
    open_at_start: int = 2,
    wait_seconds: float = _COMMAND_SECONDS,
    settings: Mapping[str, str] | None = None,
    check: Callable[[Connection], Awaitable[None]] | None = None,
) -> Pool:
    """A pool whose sessions have the application name `name`, and these `settings` of PostgreSQL.

    The pool may grow up to `ceiling`. Behind a PoolerUrl there are no settings of sessions.

    `check` is called with each new connection; a connection for which it raises is not used.
    Raises DatabaseUnavailable if the server does not answer, and Misconfigured if it refuses the
    URL; neither if `open_at_start` is 0.
    """
    pool = Pool(
        url,
        label=name.removeprefix("ltzd "),
        wait_seconds=wait_seconds,
        limit=size,
        min_size=min(open_at_start, size),
        max_size=max(size, ceiling or 0),
        init=_prepare if check is None else partial(_prepare_and_check, check),
        reset=_leave_as_is,
        command_timeout=_COMMAND_SECONDS,
        timeout=_CONNECT_SECONDS,
        **_pooled(name) if isinstance(url, PoolerUrl) else _direct(name, settings or {}),
    )
    try:
        await pool
    except (*_NOT_OPENED, *_REFUSALS) as error:
        raise _failure(error, url) from error
    return pool


def _failure(error: BaseException, url: str) -> DatabaseUnavailable | Misconfigured:
    """A certificate that is refused raises a ValueError, though nothing is wrong with the URL."""
    if isinstance(error, _REFUSALS) and not isinstance(error, ssl.SSLError):
        return Misconfigured(refusal_of(error, url))
    return DatabaseUnavailable(no_answer(error, url))


def _direct(name: str, settings: Mapping[str, str]) -> dict[str, Any]:
    return {
        "connection_class": _ProbedConnection,
        "server_settings": {
            "application_name": name,
            **WRITTEN_FOR,
            **_PLANS,
            **_TCP_SETTINGS,
            **settings,
        },
    }


def _pooled(name: str) -> dict[str, Any]:
    """PgBouncer before 1.21 keeps no prepared statements, and refuses other startup parameters."""
    return {
        "connection_class": _PooledConnection,
        "server_settings": {"application_name": name},
        "statement_cache_size": 0,
    }


async def connect(
    url: str,
    name: str,
    *,
    seconds: float = _CONNECT_SECONDS,
    settings: Mapping[str, str] | None = None,
) -> Connection:
    """Open a connection outside the pool within `seconds`, for leases and LISTEN.

    Raises as `open_pool` does.
    """
    try:
        async with asyncio.timeout(seconds):
            connection = await connect_to_any_server(
                url,
                timeout=seconds,
                command_timeout=_COMMAND_SECONDS,
                connection_class=_ProbedConnection,
                server_settings={
                    "application_name": f"ltzd {name}",
                    **WRITTEN_FOR,
                    **_TCP_SETTINGS,
                    **(settings or {}),
                },
            )
            try:
                await _prepare(connection)
            except BaseException:
                connection.terminate()
                raise
    except (*_NOT_OPENED, *_REFUSALS) as error:
        raise _failure(error, url) from error
    return connection


_last_servers: dict[str, str] = {}
"""By the URL of several servers, the one of them that took the last connection."""


async def connect_to_any_server(url: str, *, timeout: float, **options: Any) -> Connection:
    """Connect as asyncpg does, but give each server of the URL its share of the time.

    asyncpg has one limit for all servers: a machine without power, which refuses nothing, would use
    it up before the next server is asked. With `target_session_attrs` the server that took the last
    connection is asked first. `prefer-standby` has asyncpg's limit: it needs all servers' answers.
    """
    servers, attributes = each_server(url), session_attributes(url)
    if len(servers) == 1 or attributes == "prefer-standby":
        return await asyncpg.connect(url, timeout=timeout, **options)
    if attributes is not None:
        servers = tuple(sorted(servers, key=lambda server: server != _last_servers.get(url)))
    failure: BaseException | None = None
    for server in servers:
        try:
            connection = await asyncpg.connect(server, timeout=timeout / len(servers), **options)
        except (OSError, asyncpg.CannotConnectNowError) as error:
            failure = error
        except asyncpg.exceptions.TargetServerAttributeNotMatched as error:
            failure = failure or error
        else:
            _last_servers[url] = server
            return connection
    assert failure is not None
    raise failure


async def end_with_client(connection: Connection) -> None:
    """Have the server cancel this session's statements soon after the client's process has ended.

    A server learns otherwise only when it sends rows that nobody is left. Some platforms cannot
    notice it: their servers refuse the setting.
    """
    with suppress(asyncpg.InvalidParameterValueError):
        await connection.execute("SET client_connection_check_interval = '1s'")


@asynccontextmanager
async def transaction(pool: Pool) -> AsyncIterator[Connection]:
    """One database transaction. Raises DatabaseUnavailable as `session` does."""
    async with session(pool) as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def session(pool: Pool) -> AsyncIterator[Connection]:
    """A pooled connection for single statements.

    Raises DatabaseUnavailable if the connection is lost, NoConnection if none becomes free in
    time, and Broken for a statement that the connection cannot serve.
    """
    try:
        connection = await pool.take()
        try:
            yield connection
        except asyncpg.ReadOnlySQLTransactionError:
            # A standby: after a failover a new connection may lead to the primary, and this one,
            # which a busy pool would use for ever, never will.
            connection.terminate()
            raise
        except asyncpg.InterfaceError as error:
            misuse = misuse_of(error, connection)
            if misuse is None:
                raise
            connection.terminate()  # another statement may still run on it
            raise misuse from error
        finally:
            await pool.give_back(connection)
    except LOST as error:
        pool.note(error)
        raise DatabaseUnavailable(f"The database was lost: {reason_of(error)}") from error


async def require_writes(connection: Connection) -> None:
    """Raises ReadOnlySQLTransactionError, as a write would, if the server takes no writes."""
    if not await takes_writes(connection):
        raise asyncpg.ReadOnlySQLTransactionError("the server takes no writes")


async def takes_writes(connection: Connection) -> bool:
    """Whether this session may write, as a standby's may not, and commits come to an end."""
    takes: bool = await connection.fetchval(
        "SELECT NOT current_setting('transaction_read_only')::bool"
    )
    return takes and not await commits_hang(connection)


async def commits_hang(connection: Connection) -> bool:
    """Whether a commit of ltzd has waited for a synchronous standby for `_STANDBY_SECONDS`.

    PostgreSQL lets it wait without end, so a lost standby stops every write.
    """
    hang: bool = await connection.fetchval(
        """
        SELECT EXISTS (
            SELECT FROM pg_stat_activity
             WHERE wait_event = 'SyncRep'
               AND usename IN (current_user, session_user)
               AND state_change < clock_timestamp() - make_interval(secs => $1))
        """,
        _STANDBY_SECONDS,
    )
    return hang


async def connections_allowed(connection: Connection) -> int:
    """The connections that the server grants to ordinary users, all programs together."""
    allowed: int = await connection.fetchval(
        """
        SELECT sum(CASE name WHEN 'max_connections' THEN setting::int ELSE -setting::int END)::int
          FROM pg_settings
         WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')
        """
    )
    return allowed
