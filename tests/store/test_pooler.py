"""Behind a pooler each database transaction may run in another session of the server."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

import ltzd
from ltzd.daemon.checks import database as database_check
from ltzd.daemon.checks import pooler_and_replica
from ltzd.daemon.settings.settings import read_settings
from ltzd.errors import DatabaseUnavailable
from ltzd.rules.checks.findings import Level
from ltzd.rules.database_connections import PoolPolicy, pooled_pools
from ltzd.store.database import Pool, connect, open_pool, session, transaction
from ltzd.store.pooler import PoolerUrl
from ltzd.store.role_pools import open_role_pools
from tests.support.installations import Installation
from tests.support.rows.core import value
from tests.support.services.pgbouncer import PROGRAM, WHY_ABSENT, PgBouncer, a_pgbouncer
from tests.support.waiting import until

SESSIONS = 2
DIRECT_SETTINGS = (
    "tcp_keepalives_idle, tcp_keepalives_interval, tcp_keepalives_count, tcp_user_timeout, "
    "idle_in_transaction_session_timeout"
)
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=WHY_ABSENT)


@pytest_asyncio.fixture
async def bouncer(database_url: str) -> AsyncIterator[PgBouncer]:
    async with a_pgbouncer(database_url, server_sessions=SESSIONS) as bouncer:
        yield bouncer


@pytest_asyncio.fixture
async def pooled(bouncer: PgBouncer, database_url: str) -> AsyncIterator[Pool]:
    url = PoolerUrl(bouncer.url_of(database_url))
    pool = await open_pool(url, name="ltzd http", size=8, wait_seconds=10.0)
    yield pool
    pool.terminate()


async def test_many_connections_share_a_few_sessions_and_each_gets_its_own_answers(
    pooled: Pool,
) -> None:
    async def ask(caller: int) -> set[int]:
        """A connection of its own, kept between statements, each of which is new to a session."""
        seen = set()
        async with session(pooled) as connection:
            for number in range(10):
                row = await connection.fetchrow(
                    f"SELECT $1::int + {caller}, pg_backend_pid(), $2::jsonb, $3::bytea[]",
                    *(number, {"caller": caller}, [bytes([caller])]),
                )
                assert row[0] == number + caller
                assert (row[2], row[3]) == ({"caller": caller}, [bytes([caller])])
                seen.add(row[1])
        return seen

    sessions = set().union(*await asyncio.gather(*(ask(caller) for caller in range(8))))

    assert len(sessions) == SESSIONS


async def test_a_new_connection_asks_the_server_for_no_type(
    pooled: Pool, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL compiles this question for seconds, and behind a pooler it cannot be kept from it.

    The question is asked for a type that asyncpg does not know, such as an array.
    """

    async def ask(_connection: object, types: list[int], _timeout: float) -> None:
        raise AssertionError(f"the server is asked for the types {types}")

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", ask)
    direct = await connect(database_url, "test")
    columns = await direct.fetch(
        "SELECT DISTINCT udt_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND data_type = 'ARRAY'"
    )
    arrays = {f"{row['udt_name'].removeprefix('_')}[]" for row in columns} | casts_to_arrays()
    assert {"uuid[]", "bytea[]", "text[]"} <= arrays

    async with session(pooled) as connection:
        for type_name in sorted(arrays):
            for either in (connection, direct):
                assert await either.fetchval(f"SELECT $1::{type_name}", []) == []
    await direct.close()


def casts_to_arrays() -> set[str]:
    """The types of arrays in the text of ltzd's statements."""
    return {
        cast
        for path in Path(ltzd.__file__).parent.rglob("*.py")
        for cast in re.findall(r"::(\w+\[\])", path.read_text())
    }


async def test_a_transaction_sees_others_commits_whatever_isolation_is_the_default(
    database_url: str,
) -> None:
    owner = await connect(database_url, "test")
    await owner.execute(
        f"ALTER DATABASE {database_url.rpartition('/')[2]} "
        "SET default_transaction_isolation = 'repeatable read'"
    )
    await owner.execute("CREATE TABLE spent (ltz int)")
    async with a_pgbouncer(database_url, server_sessions=1) as bouncer:
        pool = await open_pool(PoolerUrl(bouncer.url_of(database_url)), name="ltzd http", size=1)
        try:
            assert await value(pool, "SHOW default_transaction_isolation") == "repeatable read"
            async with transaction(pool) as connection:
                assert await connection.fetchval("SELECT count(*) FROM spent") == 0
                await owner.execute("INSERT INTO spent VALUES (1)")
                assert await connection.fetchval("SELECT count(*) FROM spent") == 1
        finally:
            pool.terminate()
            await owner.close()


async def test_a_transaction_stays_in_one_session_and_is_whole(pooled: Pool) -> None:
    async with session(pooled) as connection:
        await connection.execute("CREATE TABLE written (number int)")

    async def write(number: int) -> set[int]:
        pids = set()
        async with transaction(pooled) as connection:
            for _ in range(3):
                pids.add(await connection.fetchval("SELECT pg_backend_pid()"))
                await connection.execute("INSERT INTO written VALUES ($1)", number)
        return pids

    for pids in await asyncio.gather(*(write(number) for number in range(12))):
        assert len(pids) == 1
    with suppress(ZeroDivisionError):
        async with transaction(pooled) as connection:
            await connection.execute("INSERT INTO written VALUES ($1)", 99)
            raise ZeroDivisionError
    with pytest.raises(asyncpg.UniqueViolationError):
        async with session(pooled) as connection:
            await connection.execute("CREATE UNIQUE INDEX ON written (number)")
    assert await value(pooled, "SELECT count(*) FROM written") == 36
    assert await value(pooled, "SELECT count(DISTINCT number) FROM written") == 12


async def test_a_cancelled_statement_frees_the_connection_and_the_session(
    pooled: Pool, database_url: str
) -> None:
    # A session is `active` while it parses, too, and the pooler drops a cancellation that comes
    # between that and the execution, when no session is tied to the client.
    running = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event = 'PgSleep'"
    )
    slow = [asyncio.create_task(value(pooled, "SELECT pg_sleep(60)")) for _ in range(SESSIONS)]
    direct = await connect(database_url, "observer")

    async def so_many_run(count: int) -> bool:
        return bool(await direct.fetchval(running) == count)

    await until(lambda: so_many_run(SESSIONS))
    for task in slow:
        task.cancel()
    await asyncio.wait(slow)

    assert await value(pooled, "SELECT 1") == 1
    await until(lambda: so_many_run(0))
    await direct.close()


async def test_an_idle_transaction_ends_as_in_a_direct_session(pooled: Pool) -> None:
    setting = "SELECT current_setting('idle_in_transaction_session_timeout')"
    async with transaction(pooled) as connection:
        assert await connection.fetchval(setting) == "3s"
    async with transaction(pooled) as connection, connection.transaction():
        assert await connection.fetchval(setting) == "3s"
    assert await value(pooled, setting) == "0"


@pytest.mark.parametrize(
    ("mode", "level", "part"),
    [
        ("transaction", Level.OK, "The pooler leads to the same database"),
        ("statement", Level.FAULT, "in transaction mode"),
    ],
)
async def test_the_start_finds_whether_it_is_a_pooler_of_transactions(
    database_url: str, tmp_path: Path, mode: str, level: Level, part: str
) -> None:
    async with a_pgbouncer(database_url, mode=mode) as bouncer:
        installation = Installation.of(tmp_path, database_url, "http://127.0.0.1:1")
        url = bouncer.url_of(database_url)
        installation.values["database"] = f'pooled_url = "{url}"'
        settings = read_settings(installation.write())
        connection = await connect(database_url, "check")
        (finding,) = await pooler_and_replica.examine(connection, settings)
        await connection.close()

    assert (finding.check, finding.level) == ("pooler", level)
    assert part in finding.sentence


async def test_a_setting_in_the_poolers_url_that_it_refuses_is_named(
    database_url: str, tmp_path: Path
) -> None:
    async with a_pgbouncer(database_url) as bouncer:
        installation = Installation.of(tmp_path, database_url, "http://127.0.0.1:1")
        url = f"{bouncer.url_of(database_url)}?search_path=ltzd"
        installation.values["database"] = f'pooled_url = "{url}"'
        settings = read_settings(installation.write())
        connection = await connect(database_url, "check")
        (finding,) = await pooler_and_replica.examine(connection, settings)
        await connection.close()

    assert (finding.check, finding.level) == ("pooler", Level.FAULT)
    assert "unsupported startup parameter: search_path" in finding.sentence
    assert "correct [database] pooled_url" in finding.sentence
    assert "give the address of PostgreSQL itself" not in finding.sentence


@pytest.mark.parametrize(
    ("mode", "ignored"),
    [
        ("transaction", ""),
        ("transaction", DIRECT_SETTINGS),
        ("session", DIRECT_SETTINGS),
    ],
)
async def test_the_start_refuses_a_direct_url_that_leads_to_a_pooler(
    database_url: str, tmp_path: Path, mode: str, ignored: str
) -> None:
    """Leases and wake-ups need sessions of their own, whatever a pooler was told to overlook."""
    async with a_pgbouncer(database_url, mode=mode, ignored=ignored) as bouncer:
        url = bouncer.url_of(database_url)
        settings = read_settings(Installation.of(tmp_path, url, "http://127.0.0.1:1").write())
        examination = await database_check.examine(settings, None, [])

    (finding,) = examination.findings
    assert finding.level is Level.FAULT
    assert "is behind a pooler" in finding.sentence
    assert "Only [database] pooled_url may lead to a pooler" in finding.sentence


async def test_no_statement_of_a_pooled_session_is_compiled(
    bouncer: PgBouncer, database_url: str
) -> None:
    """PostgreSQL compiles what it expects to be costly, as any write of a large table may be."""
    owner = await connect(database_url, "test")
    name = database_url.rpartition("/")[2]
    await owner.execute(f"ALTER DATABASE {name} SET jit = on")
    url = PoolerUrl(bouncer.url_of(database_url))

    async def start() -> None:
        async with open_role_pools(database_url, ("http",), PoolPolicy(), pooled_url=url):
            """The pools are open."""

    await asyncio.gather(*(start() for _ in range(4)))

    # The pooler's later sessions are those of a user who logs in now.
    later = await connect(database_url, "test")
    assert await later.fetchval("SHOW jit") == "off"
    await later.close()
    await owner.close()


async def test_a_pooler_that_is_away_is_a_database_that_is_away_until_it_is_back(
    pooled: Pool, bouncer: PgBouncer
) -> None:
    assert await value(pooled, "SELECT 1") == 1
    await bouncer.kill()
    with pytest.raises(DatabaseUnavailable):
        await value(pooled, "SELECT 1")
    await bouncer.start()

    async def answers() -> bool:
        try:
            return bool(await value(pooled, "SELECT 2") == 2)
        except DatabaseUnavailable:
            return False

    assert await until(answers)


async def test_lanes_and_index_keep_sessions_of_their_own(
    bouncer: PgBouncer, database_url: str
) -> None:
    everything = ("http", "operator", "indexer", "deliveries")
    policy = PoolPolicy(http_wait_seconds=0.5, role_wait_seconds=5.0)
    async with open_role_pools(
        database_url, everything, policy, pooled_url=PoolerUrl(bouncer.url_of(database_url))
    ) as pools:
        await bouncer.kill()
        for pool in (pools.operator, pools.indexer, pools.admin):
            assert await value(pool, "SELECT 1") == 1
        for pool in (pools.http, pools.deliveries):
            with pytest.raises(DatabaseUnavailable):
                await value(pool, "SELECT 1")


def test_a_process_that_only_serves_needs_one_session_of_its_own() -> None:
    policy = PoolPolicy()
    assert policy.total(("http",)) == 13
    assert policy.total(("http",), pooled=pooled_pools(("http",))) == 1
    everything = ("http", "operator", "indexer", "deliveries")
    assert policy.total(everything) == 28
    assert policy.total(everything, pooled=pooled_pools(everything)) == 14
