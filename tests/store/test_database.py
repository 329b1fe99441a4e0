"""Migrations run once; a lost server raises DatabaseUnavailable instead of a driver's error."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from ltzd.errors import Broken, DatabaseUnavailable, Misconfigured
from ltzd.store import database, schema_revisions
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.event_handler import partitions
from tests.support.certificates import DAY, a_pair
from tests.support.rows.core import value
from tests.support.services.postgres import Databases
from tests.support.services.silent_proxy import a_silent_proxy
from tests.support.waiting import until

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


async def tables(url: str) -> set[str]:
    connection = await database.connect(url, "test")
    try:
        rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    finally:
        await connection.close()
    return {row["tablename"] for row in rows}


async def empty(url: str) -> None:
    connection = await database.connect(url, "test")
    try:
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    finally:
        await connection.close()


async def test_migrating_a_current_database_changes_nothing(database_url: str) -> None:
    before = await tables(database_url)
    await schema_revisions.migrate(database_url)
    assert await tables(database_url) == before
    assert {"events", "rewards", "transactions", "alembic_version"} <= before


async def test_two_concurrent_migrations_create_one_schema(database_url: str) -> None:
    await empty(database_url)
    await asyncio.gather(*(schema_revisions.migrate(database_url) for _ in range(3)))
    assert {"events", "rewards", "transactions", "alembic_version"} <= await tables(database_url)


async def test_a_newer_schema_is_refused(database_url: str) -> None:
    connection = await database.connect(database_url, "test")
    await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    await connection.close()

    with pytest.raises(Misconfigured, match=r"9999.*newer ltzd"):
        await schema_revisions.migrate(database_url)


async def test_an_unreachable_server_is_unavailable() -> None:
    with pytest.raises(DatabaseUnavailable):
        await database.open_pool(NOWHERE)
    with pytest.raises(DatabaseUnavailable):
        await database.connect(NOWHERE, "test")
    with pytest.raises(DatabaseUnavailable):
        await schema_revisions.migrate(NOWHERE)


async def test_a_database_that_does_not_exist_is_a_configuration_error(
    databases: Databases,
) -> None:
    with pytest.raises(Misconfigured, match="3D000"):
        await database.connect(databases.url_of("nothing"), "test")


async def test_a_server_that_opens_no_session_on_a_full_disk_is_unavailable(
    database_url: str,
) -> None:
    """A session that starts may have to write a file, and PostgreSQL says XX000 if it cannot."""
    connection = await asyncpg.connect(database_url, server_settings={"event_triggers": "off"})
    try:
        await connection.execute(
            """
            CREATE FUNCTION cannot_start() RETURNS event_trigger LANGUAGE plpgsql AS $$
            BEGIN
                RAISE EXCEPTION 'could not write init file' USING ERRCODE = 'XX000';
            END $$;
            CREATE EVENT TRIGGER full_disk ON login EXECUTE FUNCTION cannot_start();
            """
        )
        with pytest.raises(DatabaseUnavailable, match="could not write init file"):
            await database.connect(database_url, "test")
        with pytest.raises(DatabaseUnavailable, match="could not write init file"):
            await database.open_pool(database_url)
        pool = await database.open_pool(database_url, open_at_start=0)
        with pytest.raises(DatabaseUnavailable, match="could not write init file"):
            await value(pool, "SELECT 1")
        await pool.close()
    finally:
        await connection.execute("DROP EVENT TRIGGER IF EXISTS full_disk")
        await connection.close()


@pytest.mark.parametrize(
    ("ends", "is_trusted", "reason"),
    [(-DAY / 2, True, "certificate has expired"), (DAY, False, "self-signed certificate")],
)
async def test_a_certificate_that_is_refused_is_said_to_be(
    tmp_path: Path, ends: timedelta, is_trusted: bool, reason: str
) -> None:
    """The certificate of a server, which its administrator has let expire or replaced."""
    pair = a_pair(ends=ends)
    certificate, key = pair.write(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    trusted = tmp_path / "ca.crt"
    trusted.write_text((pair if is_trusted else a_pair()).certificate)

    async def begin_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readexactly(8)
            writer.write(b"S")
            await writer.start_tls(context)
        writer.close()

    async with await asyncio.start_server(begin_tls, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"postgresql://ltzd@127.0.0.1:{port}/ltzd?sslmode=verify-full&sslrootcert={trusted}"
        for opened in (database.connect(url, "test"), database.open_pool(url)):
            with pytest.raises(DatabaseUnavailable, match=f"its certificate is refused: {reason}"):
                await opened


async def test_a_pool_tells_of_a_full_disk_for_a_while(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pool.disk_full
    refusal = "RAISE EXCEPTION 'could not extend file: No space left on device'"

    async def refused() -> None:
        async with session(pool) as connection:
            await connection.execute(f"DO $$ BEGIN {refusal} USING ERRCODE = '53100'; END $$")

    with pytest.raises(DatabaseUnavailable):
        await refused()
    after = pool.disk_full
    assert (before, after) == (None, "could not extend file: No space left on device (53100)")
    monkeypatch.setattr(database, "_DISK_FULL_SECONDS", 0.0)
    assert pool.disk_full is None


async def kill_pooled(url: str) -> None:
    connection = await database.connect(url, "test")
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'ltzd' AND datname = current_database()"
    )
    await connection.close()


@pytest.mark.parametrize("opened", [session, transaction])
async def test_a_lost_connection_is_unavailable_and_the_pool_recovers(
    database_url: str, pool: Pool, opened: Callable[[Pool], AbstractAsyncContextManager[Connection]]
) -> None:
    async def lose() -> None:
        async with opened(pool) as connection:
            await connection.execute("SELECT 1")
            await kill_pooled(database_url)
            await connection.execute("SELECT 1")

    with pytest.raises(DatabaseUnavailable):
        await lose()

    async def recovers() -> bool:
        """Each dead connection may fail one statement."""
        try:
            return bool(await value(pool, "SELECT 1") == 1)
        except DatabaseUnavailable:
            return False

    await until(recovers)


@asynccontextmanager
async def nested(pool: Pool) -> AsyncIterator[Connection]:
    """A database transaction as the modules of the store begin it."""
    async with session(pool) as connection, connection.transaction():
        yield connection


@pytest.mark.parametrize("opened", [session, transaction, nested])
async def test_a_caller_that_is_cancelled_while_the_server_is_silent_stays_cancelled(
    database_url: str, opened: Callable[[Pool], AbstractAsyncContextManager[Connection]]
) -> None:
    """A loop that got DatabaseUnavailable instead would go on, and its process would never end."""
    async with a_silent_proxy(database_url) as (proxy, url):
        silent_pool = await database.open_pool(url, open_at_start=0)
        is_asking = asyncio.Event()

        async def ask() -> None:
            async with opened(silent_pool) as connection:
                await connection.execute("SELECT 1")
                proxy.swallow()
                is_asking.set()
                await connection.execute("SELECT 2")

        asking = asyncio.create_task(ask())
        await is_asking.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        proxy.heal()
        assert await value(silent_pool, "SELECT 3") == 3
        silent_pool.terminate()


@pytest.mark.parametrize(
    "closing",
    [
        "ALTER DATABASE closing ALLOW_CONNECTIONS false",
        "REVOKE CONNECT ON DATABASE closing FROM PUBLIC",
        "ALTER ROLE visitor NOLOGIN",
    ],
)
async def test_a_database_that_an_operator_closes_is_unavailable_and_a_fault_at_a_start(
    database_url: str, databases: Databases, closing: str
) -> None:
    """As before a restore: new connections are refused, and the old ones are ended."""
    owner = await database.connect(database_url, "test")
    await owner.execute("CREATE ROLE visitor LOGIN PASSWORD 'secret'")
    await owner.execute("CREATE DATABASE closing TEMPLATE template0")
    address = databases.url_of("closing").rpartition("@")[2]
    url = f"postgresql://visitor:secret@{address}"
    pool = await database.open_pool(url)
    try:
        await owner.execute(closing)
        await owner.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'visitor'"
        )
        for _ in range(3):
            with pytest.raises(DatabaseUnavailable, match="database was lost"):
                async with session(pool) as connection:
                    await connection.execute("SELECT 1")
        with pytest.raises(Misconfigured, match=r"The database closing at .* refuses"):
            await database.connect(url, "test")
    finally:
        pool.terminate()
        await owner.execute("DROP DATABASE closing WITH (FORCE)")
        await owner.execute("DROP ROLE visitor")
        await owner.close()


async def test_a_connection_at_rest_returns_within_one_turn_of_the_event_loop(pool: Pool) -> None:
    turns: list[int] = []
    async with session(pool) as connection:
        await connection.execute("SELECT 1")
        asyncio.get_running_loop().call_soon(turns.append, 1)
    assert not turns
    assert pool.in_use == 0


async def test_a_connection_returned_within_a_transaction_is_rolled_back(pool: Pool) -> None:
    async with session(pool) as connection:
        await connection.execute("BEGIN; CREATE TABLE unfinished ()")
    async with session(pool) as again:
        assert not again.is_in_transaction()
        assert await again.fetchval("SELECT to_regclass('unfinished')") is None


async def test_a_retryable_conflict_is_unavailable(pool: Pool) -> None:
    async with session(pool) as connection:
        await connection.execute("CREATE TABLE contested (n int)")
        await connection.execute("INSERT INTO contested VALUES (0)")

    async def lose_the_race() -> None:
        async with transaction(pool) as connection:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await connection.fetch("SELECT * FROM contested")
            async with session(pool) as faster:
                await faster.execute("UPDATE contested SET n = 1")
            await connection.execute("UPDATE contested SET n = 2")

    with pytest.raises(DatabaseUnavailable, match="40001"):
        await lose_the_race()
    assert await value(pool, "SELECT n FROM contested") == 1


@pytest.mark.parametrize("opened", [session, transaction, nested])
async def test_a_connection_to_a_server_that_takes_no_writes_is_replaced(
    database_url: str,
    databases: Databases,
    opened: Callable[[Pool], AbstractAsyncContextManager[Connection]],
) -> None:
    """After a failover the name of the primary may lead to a standby for a while."""
    owner = await database.connect(database_url, "test")
    await owner.execute("CREATE DATABASE moved TEMPLATE template0")
    moved = await database.connect(databases.url_of("moved"), "test")
    await moved.execute("CREATE TABLE written (number int)")
    await owner.execute("ALTER DATABASE moved SET default_transaction_read_only = on")
    pool = await database.open_pool(databases.url_of("moved"), size=2)

    async def write() -> None:
        async with opened(pool) as connection:
            await connection.execute("INSERT INTO written VALUES (1)")

    try:
        with pytest.raises(DatabaseUnavailable, match="25006"):
            await write()
        await owner.execute("ALTER DATABASE moved RESET default_transaction_read_only")

        async def is_written() -> bool:
            try:
                await write()
            except DatabaseUnavailable:
                return False
            return True

        await until(is_written)
        assert await moved.fetchval("SELECT count(*) FROM written") == 1
    finally:
        pool.terminate()
        await moved.close()
        await owner.execute("DROP DATABASE moved WITH (FORCE)")
        await owner.close()


async def test_a_lock_that_is_not_free_in_the_servers_time_is_unavailable(pool: Pool) -> None:
    """Administrators set `lock_timeout` for a user or a database."""
    async with session(pool) as connection:
        await connection.execute("CREATE TABLE contested (n int)")

    async def read() -> None:
        async with transaction(pool) as waiting:
            await waiting.execute("SET LOCAL lock_timeout = '1ms'")
            await waiting.fetch("SELECT * FROM contested")

    async with transaction(pool) as holder:
        await holder.execute("LOCK TABLE contested")
        with pytest.raises(DatabaseUnavailable, match="55P03"):
            await read()


async def test_a_statement_from_before_a_column_was_added_is_unavailable_once(pool: Pool) -> None:
    """In a rolling upgrade old processes run on the new schema for a while."""

    async def insert() -> int:
        async with transaction(pool) as connection:
            row = await connection.fetchrow("INSERT INTO growing VALUES (7) RETURNING *")
        n: int = row["n"]
        return n

    async with session(pool) as connection:
        await connection.execute("CREATE TABLE growing (n int)")
    assert await insert() == 7
    async with session(pool) as connection:
        await connection.execute("ALTER TABLE growing ADD COLUMN m int")
    with pytest.raises(DatabaseUnavailable, match="0A000"):
        await insert()
    assert await insert() == 7


async def test_a_database_transaction_that_lasts_too_long_for_the_server_is_unavailable(
    pool: Pool,
) -> None:
    """PostgreSQL 17 and later have `transaction_timeout`."""
    with pytest.raises(DatabaseUnavailable, match="transaction timeout"):
        async with session(pool):
            raise asyncpg.TransactionTimeoutError(
                "terminating connection due to transaction timeout"
            )


@asynccontextmanager
async def defaults(url: str, settings: Mapping[str, str]) -> AsyncIterator[None]:
    """In the block, new sessions of the database have these settings, as an administrator's
    `ALTER DATABASE … SET` gives them."""
    database_name = url.rpartition("/")[2]
    owner = await database.connect(url, "test")
    for name, setting in settings.items():
        await owner.execute(f"ALTER DATABASE {database_name} SET {name} = '{setting}'")
    try:
        yield
    finally:
        await owner.close()


@pytest.mark.parametrize("default", ["repeatable read", "serializable"])
async def test_a_transaction_sees_others_commits_whatever_isolation_is_the_default(
    database_url: str, default: str
) -> None:
    """A decision under a lock counts what the lock's last holder has committed."""
    async with defaults(database_url, {"default_transaction_isolation": default}):
        pool = await database.open_pool(database_url, size=2)
        single = await database.connect(database_url, "test")
        try:
            await single.execute("CREATE TABLE spent (ltz int)")
            async with transaction(pool) as connection:
                assert await connection.fetchval("SELECT count(*) FROM spent") == 0
                await single.execute("INSERT INTO spent VALUES (1)")
                assert await connection.fetchval("SELECT count(*) FROM spent") == 1
                async with connection.transaction():
                    assert await connection.fetchval("SHOW transaction_isolation") == (
                        "read committed"
                    )
            for opened in (single, pool):
                assert await opened.fetchval("SHOW transaction_isolation") == "read committed"
            async with (
                session(pool) as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
                connection.transaction(),
            ):
                assert await connection.fetchval("SHOW transaction_isolation") == "repeatable read"
        finally:
            await single.close()
            pool.terminate()


async def test_backslashes_mean_themselves_in_migrations_and_statements(database_url: str) -> None:
    """Administrators set `standard_conforming_strings` for older programs."""
    async with defaults(database_url, {"standard_conforming_strings": "off"}):
        await empty(database_url)
        await schema_revisions.migrate(database_url)
        pool = await database.open_pool(database_url, size=1)
        single = await database.connect(database_url, "test")
        try:
            async with session(pool) as connection:
                await partitions.ensure(connection)
                assert len(await partitions.list_partitions(connection)) == 2
            assert len(await partitions.list_partitions(single)) == 2
        finally:
            await single.close()
            pool.terminate()


async def test_dates_in_texts_are_iso_whatever_date_style_is_the_default(database_url: str) -> None:
    """A person acknowledges differences of the books by ids that hold dates."""
    async with defaults(database_url, {"DateStyle": "German, DMY"}):
        pool = await database.open_pool(database_url, size=1)
        single = await database.connect(database_url, "test")
        try:
            for opened in (single, pool):
                assert await opened.fetchval("SELECT 'day ' || date '2026-03-10'") == (
                    "day 2026-03-10"
                )
        finally:
            await single.close()
            pool.terminate()


async def test_an_administrators_limit_for_short_statements_ends_none_of_ltzds(
    database_url: str,
) -> None:
    """`ltzd user erase` reads all events, and would fail half-way each time."""
    async with defaults(database_url, {"statement_timeout": "1s"}):
        pool = await database.open_pool(database_url, size=1)
        single = await database.connect(database_url, "test")
        try:
            for opened in (single, pool):
                assert await opened.fetchval("SHOW statement_timeout") == "0"
        finally:
            await single.close()
            pool.terminate()


async def test_an_administrators_limit_for_short_transactions_ends_no_upgrade(
    database_url: str,
) -> None:
    """All revisions are one transaction, which each start would begin anew."""
    await empty(database_url)
    connection = await asyncpg.connect(database_url)
    version = connection.get_server_version()
    await connection.close()
    if version.major < 17:
        pytest.skip("PostgreSQL 17 and later have transaction_timeout")
    async with defaults(database_url, {"transaction_timeout": "50ms"}):
        await schema_revisions.migrate(database_url)


async def test_a_programming_error_is_not_reported_as_a_lost_database(pool: Pool) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        async with transaction(pool) as connection:
            await connection.execute("SELECT * FROM nothing")


async def wrong_number_of_arguments(connection: Connection) -> None:
    await connection.fetchval("SELECT $1::int", 1, 2)


async def too_many_arguments(connection: Connection) -> None:
    await connection.fetchval("SELECT 1", *range(40_000))


async def two_statements_at_once(connection: Connection) -> None:
    await asyncio.gather(
        connection.fetchval("SELECT pg_sleep(60)"), connection.fetchval("SELECT 1")
    )


async def value_of_another_type(connection: Connection) -> None:
    await connection.fetchval("SELECT $1::int", "one")


@pytest.mark.parametrize("opened", [session, transaction, nested])
@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (wrong_number_of_arguments, Broken),
        (too_many_arguments, Broken),
        (two_statements_at_once, Broken),
        (value_of_another_type, asyncpg.DataError),
    ],
)
async def test_a_call_that_no_connection_can_serve_is_a_fault_of_ltzd(
    pool: Pool,
    opened: Callable[[Pool], AbstractAsyncContextManager[Connection]],
    misuse: Callable[[Connection], Awaitable[None]],
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        async with opened(pool) as connection:
            await misuse(connection)
    assert await value(pool, "SELECT 1") == 1


async def test_jsonb_is_read_back_unchanged(pool: Pool) -> None:
    document = {"a": [1, 2.5, None, "ü\u2028"], "b": {"c": True}}
    async with session(pool) as connection:
        assert await connection.fetchval("SELECT $1::jsonb", document) == document


async def test_both_ends_of_every_connection_notice_a_dead_machine_within_seconds(
    database_url: str,
) -> None:
    pool = await database.open_pool(database_url)
    alone = await database.connect(database_url, "alone")
    try:
        async with database.session(pool) as pooled:
            for connection in (pooled, alone):
                for name, wanted in (
                    ("tcp_keepalives_idle", "2"),
                    ("tcp_keepalives_interval", "1"),
                    ("tcp_keepalives_count", "3"),
                    ("tcp_user_timeout", "5000"),
                ):
                    assert await connection.fetchval(f"SHOW {name}") == wanted
                transport = connection._transport
                ours = transport.get_extra_info("socket")
                tcp = socket.socket(fileno=ours.fileno())
                try:
                    assert tcp.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                    assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 2
                    assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000
                finally:
                    tcp.detach()
    finally:
        await alone.close()
        pool.terminate()


async def test_a_server_that_is_silent_takes_not_the_time_of_the_next_one(
    database_url: str,
) -> None:
    """A machine without power refuses no connection, and is named first for ever."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        credentials, at, rest = database_url.rpartition("@")
        port = silent.getsockname()[1]
        url = f"{credentials}{at}127.0.0.1:{port},{rest}?target_session_attrs=primary"
        connection = await database.connect(url, "test", seconds=4)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()
        pool = await database.open_pool(url, name="ltzd test")
        async with database.session(pool) as connection:
            assert await connection.fetchval("SELECT 1") == 1
        await pool.close()
