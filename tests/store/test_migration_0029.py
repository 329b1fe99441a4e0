"""Migration 0029 partitions events with rows while the version before writes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from ltzd.rules.event_handler.claims import ClaimRecord
from ltzd.rules.event_handler.event_ids import event_id, first_id
from ltzd.store import background_migrations, database, schema_revisions
from ltzd.store.background_migrations import STEPS, BackgroundMigrations
from ltzd.store.database import Connection
from ltzd.store.event_handler import partitions
from ltzd.store.event_handler.events import EventRow, NewEvent, insert
from ltzd.store.migrations import event_partitions, partitioning, upgrades
from ltzd.store.migrations.event_partitions import BOUND, DEFAULT, FIRST
from tests.support.rows.core import BRAND, a_wallet
from tests.support.services.postgres import Databases
from tests.support.waiting import until

ROWS = 200
WEEK = 7 * 86_400
HIGHEST = UUID("ffffffff-ffff-4fff-bfff-ffffffffffff")
"""A random id of before that is above the bound."""
BOUND_STEP, SWAP_STEP = STEPS["partition-by-time"]


async def add(connection: Connection, id_: UUID) -> None:
    """Writes as 0028 does."""
    await connection.execute(
        """
        INSERT INTO events (id, brand_id, event_type, email, user_id, domain, source,
                            user_identifier, metadata, ltz)
        VALUES ($1, $2, 'x', 'a@x.example', $1, 'x.example', NULL, NULL, '{}', 5)
        """,
        id_,
        BRAND,
    )


@pytest_asyncio.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    """A database of 0028 with events, migrated, whose events are not converted yet."""
    async with databases.fresh() as url:
        connection = await asyncpg.connect(url)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await asyncio.to_thread(upgrades.upgrade, url, "0028")
        await connection.execute("GRANT SELECT ON events TO PUBLIC")
        for _ in range(ROWS):
            await add(connection, uuid4())
        await connection.close()
        await schema_revisions.migrate(url)
        yield url


@pytest_asyncio.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(url, "test")
    yield connection
    await connection.close()


async def now_of(connection: Connection) -> int:
    now: int = await connection.fetchval("SELECT extract(epoch FROM now())::bigint")
    return now


async def ids_of(connection: Connection) -> set[UUID]:
    return {row["id"] for row in await connection.fetch("SELECT id FROM events")}


async def test_events_are_converted_while_both_versions_write_them(
    url: str, connection: Connection
) -> None:
    """The version before writes random ids, this one ids of this second."""
    before = await ids_of(connection)
    writer = await database.connect(url, "writer")
    now = await now_of(connection)
    written: list[UUID] = []

    async def write_on() -> None:
        while True:
            for id_ in (uuid4(), event_id(now, uuid4().int >> 70)):
                await add(writer, id_)
                written.append(id_)

    writing = asyncio.create_task(write_on())
    await BackgroundMigrations(url, lambda: True).run()
    await partitions.ensure(connection)
    reached = len(written)
    await until(lambda: asyncio.sleep(0, len(written) > reached + 4))
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    writer.terminate()

    assert await background_migrations.list_pending(connection) == ()
    assert await partitioning.is_partitioned(connection, "events")
    assert await ids_of(connection) >= before | set(written)
    (first, *_) = await partitions.list_partitions(connection)
    assert first.name == FIRST
    assert first_id(now + WEEK - 2**16) <= first.upper <= first_id(now + WEEK + 60)
    assert await connection.fetchval(f"SELECT count(*) FROM {DEFAULT}") == 0
    for name in ("events", DEFAULT):
        rights = await connection.fetchval(
            "SELECT relacl::text FROM pg_class WHERE oid = $1::text::regclass", name
        )
        assert "=r/" in rights


async def test_the_layout_is_that_of_a_new_database(url: str, databases: Databases) -> None:
    await BackgroundMigrations(url, lambda: True).run()
    layouts = []
    async with databases.fresh() as new_url:
        for each in (url, new_url):
            connection = await database.connect(each, "test")
            indexes = await connection.fetch(
                "SELECT tablename, indexdef FROM pg_indexes WHERE tablename ~ '^events' ORDER BY 2"
            )
            constraints = await connection.fetch(
                "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), convalidated "
                "FROM pg_constraint WHERE conrelid::regclass::text ~ '^events' ORDER BY 1, 2"
            )
            layouts.append([tuple(row) for row in (*indexes, *constraints)])
            await connection.close()
    assert layouts[0] == layouts[1]
    assert layouts[0]


async def test_a_random_id_above_the_bound_is_kept_and_found(connection: Connection) -> None:
    await add(connection, HIGHEST)
    await BOUND_STEP.run(connection, "events")
    await SWAP_STEP.run(connection, "events")

    assert len(await ids_of(connection)) == ROWS + 1
    place = "SELECT tableoid::regclass::text FROM events WHERE id = $1"
    assert await connection.fetchval(place, HIGHEST) == DEFAULT


async def test_each_step_may_be_repeated_and_an_old_bound_is_replaced(
    connection: Connection,
) -> None:
    await add(connection, HIGHEST)
    with pytest.raises(AssertionError):
        await SWAP_STEP.run(connection, "events")
    near = first_id(await now_of(connection) + 3_600)
    await BOUND_STEP.run(connection, "events")
    await connection.execute(
        f"ALTER TABLE events DROP CONSTRAINT {BOUND}, "
        f"ADD CONSTRAINT {BOUND} CHECK (id < '{near}') NOT VALID"
    )
    with pytest.raises(AssertionError):
        await SWAP_STEP.run(connection, "events")
    for step in (BOUND_STEP, BOUND_STEP, SWAP_STEP, BOUND_STEP, SWAP_STEP):
        await step.run(connection, "events")

    assert len(await ids_of(connection)) == ROWS + 1
    (first,) = await partitions.list_partitions(connection)
    assert first.upper > near


async def test_an_event_beyond_the_bound_lifts_it_and_is_written_when_it_is_decided_again(
    connection: Connection,
) -> None:
    await BOUND_STEP.run(connection, "events")
    id_ = event_id(await now_of(connection) + 2 * WEEK, 1)
    row = EventRow(
        id=id_,
        brand_id=BRAND,
        event_type="x",
        email="a@x.example",
        user_id=uuid4(),
        domain="x.example",
        source=None,
        user_identifier=None,
        metadata={},
        ltz=5,
        wallet=a_wallet(1),
    )
    claim = ClaimRecord(1, id_, datetime.now(UTC))
    late = NewEvent(row, (BRAND, "x", "a@x.example"), claim, "did:a", None)

    assert await insert(connection, [late]) == {}
    assert len(await insert(connection, [late])) == 1

    with pytest.raises(AssertionError):
        await SWAP_STEP.run(connection, "events")
    await BOUND_STEP.run(connection, "events")
    await SWAP_STEP.run(connection, "events")
    assert id_ in await ids_of(connection)


@pytest.mark.parametrize("step", [BOUND_STEP, SWAP_STEP], ids=["bound", "swap"])
async def test_a_connection_that_ends_within_a_step_loses_nothing(
    url: str, connection: Connection, step: background_migrations.Step
) -> None:
    """As after a kill: PostgreSQL ends the session while the step waits for the table."""
    await add(connection, HIGHEST)
    if step is SWAP_STEP:
        await BOUND_STEP.run(connection, "events")
    reader = await database.connect(url, "reader")
    await reader.execute("BEGIN; LOCK TABLE events IN ACCESS SHARE MODE")
    worker = await database.connect(url, "worker")
    working = asyncio.ensure_future(step.run(worker, "events"))

    async def pid() -> int | None:
        waiting: int | None = await connection.fetchval(
            "SELECT pid FROM pg_stat_activity "
            "WHERE application_name = 'ltzd worker' AND wait_event_type = 'Lock'"
        )
        return waiting

    await connection.execute("SELECT pg_terminate_backend($1)", await until(pid))
    with pytest.raises(database.LOST):
        await working
    await reader.execute("COMMIT")
    await reader.close()

    await BackgroundMigrations(url, lambda: True).run()

    assert len(await ids_of(connection)) == ROWS + 1
    assert await partitioning.is_partitioned(connection, "events")


async def test_a_table_without_rows_is_converted_by_the_migration_itself(
    databases: Databases,
) -> None:
    async with databases.fresh() as url:
        connection = await database.connect(url, "test")
        assert await partitioning.is_partitioned(connection, "events")
        (first,) = await partitions.list_partitions(connection)
        assert (first.name, first.lower, first.upper) == (FIRST, None, first_id(0))
        assert await background_migrations.list_pending(connection) == ()
        await event_partitions.bound(connection)
        await event_partitions.swap(connection)
        await connection.close()
