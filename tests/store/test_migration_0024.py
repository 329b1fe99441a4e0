"""Migration 0024 partitions the index of a database with rows while the database is used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import asyncpg
import pytest
import pytest_asyncio

from ltzd.store import background_migrations, database, schema_revisions
from ltzd.store.background_migrations import STEPS, BackgroundMigrations
from ltzd.store.database import Connection
from ltzd.store.indexer import partitions
from ltzd.store.migrations import partitioning, upgrades
from ltzd.store.migrations.partitioning import FIRST_WIDTH, TABLES
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.rows.core import a_hash, a_wallet
from tests.support.services.postgres import Databases
from tests.support.waiting import until

HEAD = 30_000_000
"""The newest block of the old database."""
ROWS = 50
OTHERS = ("balances", "site_redemptions")
"""Tables with rows that this revision and a later one change in the background."""
REDEMPTION = "00000000-0000-0000-0000-000000000007"


async def fill(connection: Connection) -> None:
    """Writes as 0022: the newest blocks, each with a fact of every kind, and a redemption."""
    await connection.execute(
        """
        INSERT INTO chains (chain_id, genesis_hash, ltz, first_block, epoch, cursor_number,
                            cursor_hash, head_number, final_number)
        VALUES ($1, $2, $3, 1, 5, $4, $2, $4, 2)
        """,
        CHAIN_ID,
        a_hash("0"),
        a_wallet(1),
        HEAD,
    )
    await connection.execute(
        """
        INSERT INTO site_redemptions (id, brand_id, wallet, perk_id, name, category, collection_id,
                                      price, confirmation_code, state, completed_at)
        VALUES ($1, $2, $2, $1, 'Mug', 'goods', 7, 30, 'CODE', 'done', now())
        """,
        REDEMPTION,
        a_wallet(2),
    )
    await connection.execute(
        "INSERT INTO balances SELECT int4send(n), n % 3 FROM generate_series(1, 12000) AS n"
    )
    for number in range(HEAD - ROWS + 1, HEAD + 1):
        await write(connection, number)


async def write(connection: Connection, number: int) -> None:
    """A block with a fact of every kind, in statements that fit both layouts."""
    hash_ = a_hash(str(number))
    async with connection.transaction():
        await connection.execute("INSERT INTO blocks VALUES ($1, $2, $1, now())", hash_, number)
        place = "$1, 0, $2, $1"
        for values in (
            f"transfers VALUES ({place}, $3, $3, 5)",
            f"mints VALUES ({place}, $3, $1, 5)",
            f"perk_transfers VALUES ({place}, 1, $3, $3)",
            f"""perk_claims VALUES ({place}, $3, 7, 1, 30, 1,
                uuid_send('{REDEMPTION}') || decode(repeat('00', 16), 'hex'))""",
            f"charge_redemptions VALUES ({place}, 1, $3, $1, 1, 1)",
            f"purchases VALUES ({place}, $3, 7, $1, 1, 30)",
            f"deal_facts VALUES ({place}, $1, 'locked', $3, $3, 0, 0, 10)",
        ):
            await connection.execute(f"INSERT INTO {values}", hash_, number, a_wallet(2))


async def contents(connection: Connection) -> dict[str, list[tuple[object, ...]]]:
    return {
        name: [
            tuple(row)
            for row in await connection.fetch(f"SELECT * FROM {name} ORDER BY {table.height}")
        ]
        for name, table in TABLES.items()
    }


@pytest_asyncio.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    """A database of 0022 with rows, migrated, whose tables are not converted yet."""
    async with databases.fresh() as url:
        connection = await asyncpg.connect(url)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await asyncio.to_thread(upgrades.upgrade, url, "0022")
        await connection.execute("GRANT SELECT ON perk_claims TO PUBLIC")
        await fill(connection)
        await connection.close()
        await schema_revisions.migrate(url)
        yield url


@pytest_asyncio.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(url, "test")
    yield connection
    await connection.close()


async def test_the_migration_itself_converts_no_table_of_a_chain_that_is_followed(
    connection: Connection,
) -> None:
    pending = await background_migrations.list_pending(connection)

    assert {(migration.table, migration.step, migration.error) for migration in pending} == {
        (name, None, None) for name in (*TABLES, *OTHERS)
    }
    assert not any([await partitioning.is_partitioned(connection, name) for name in TABLES])


async def test_tables_are_converted_while_they_are_written_and_keep_their_rows(
    url: str, connection: Connection
) -> None:
    before = await contents(connection)
    writer = await database.connect(url, "writer")
    height = HEAD

    async def write_on() -> None:
        nonlocal height
        while True:
            await write(writer, height + 1)
            height += 1

    writing = asyncio.create_task(write_on())
    await BackgroundMigrations(url, lambda: True).run()
    reached = height
    await until(lambda: asyncio.sleep(0, height > reached + 2))
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    writer.terminate()

    assert await background_migrations.list_pending(connection) == ()
    after = await contents(connection)
    for name in TABLES:
        assert await partitioning.is_partitioned(connection, name)
        assert after[name][:ROWS] == before[name]
        assert len(after[name]) >= reached - HEAD + ROWS
    claims = await connection.fetchval("SELECT count(*) FROM site_redemption_payments")
    assert claims == len(after["perk_claims"])
    kept = await connection.fetchrow("SELECT count(*), min(amount), sum(amount) FROM balances")
    assert tuple(map(int, kept)) == (8000, 1, 12000)
    rights = await connection.fetchval(
        "SELECT relacl::text FROM pg_class WHERE oid = 'perk_claims'::regclass"
    )
    assert "=r/" in rights
    names = await connection.fetch(
        "SELECT indexrelid::regclass::text AS name FROM pg_index "
        "WHERE indrelid = 'perk_transfers'::regclass ORDER BY 1"
    )
    assert [row["name"] for row in names] == ["perk_transfers_by_token", "perk_transfers_pkey"]


async def test_the_layout_is_that_of_a_new_database(url: str, databases: Databases) -> None:
    await BackgroundMigrations(url, lambda: True).run()
    layouts = []
    async with databases.fresh() as new_url:
        for each in (url, new_url):
            connection = await database.connect(each, "test")
            indexes = await connection.fetch(
                "SELECT tablename, indexname, indexdef FROM pg_indexes "
                "WHERE tablename ~ $1 ORDER BY 2",
                f"^({'|'.join(TABLES)})(_from_0)?$",
            )
            constraints = await connection.fetch(
                "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), convalidated "
                "FROM pg_constraint WHERE conrelid::regclass::text ~ $1 ORDER BY 1, 2",
                f"^({'|'.join(TABLES)})(_from_0)?$",
            )
            layouts.append([tuple(row) for row in (*indexes, *constraints)])
            await connection.close()
    assert layouts[0] == layouts[1]


async def test_each_step_may_be_repeated_and_a_block_beyond_the_bound_lifts_it(
    connection: Connection,
) -> None:
    build, bound, swap = (step.run for step in STEPS["partition"])
    upper = (HEAD + 2**24) // FIRST_WIDTH * FIRST_WIDTH
    for name, table in TABLES.items():
        await connection.execute(f"CREATE UNIQUE INDEX {name}_by_height ON {name} ({table.key})")
        await connection.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = $1::text::regclass",
            f"{name}_by_height",
        )
        await build(connection, name)
        await build(connection, name)
        await bound(connection, name)
        await partitions.ensure(connection, HEAD + 2**24)
        with pytest.raises(AssertionError):
            await swap(connection, name)
        await bound(connection, name)
        await bound(connection, name)
        await swap(connection, name)
        for step in (build, bound, swap):
            await step(connection, name)
        first = await connection.fetchval(
            "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = $1::text::regclass",
            f"{name}_from_0",
        )
        assert first == f"FOR VALUES FROM (MINVALUE) TO ('{upper}')"


async def test_a_table_that_stays_locked_is_swapped_later_and_others_do_not_wait(
    url: str, connection: Connection
) -> None:
    pauses: list[float] = []
    reader = await database.connect(url, "reader")
    await reader.execute("BEGIN; LOCK TABLE blocks IN ACCESS SHARE MODE")

    async def release(seconds: float) -> None:
        pauses.append(seconds)
        assert await connection.fetchval("SELECT count(*) FROM blocks", timeout=5) == ROWS
        await reader.execute("COMMIT")

    await BackgroundMigrations(url, lambda: True, release).run()
    await reader.close()

    assert len(pauses) == 1
    assert await partitioning.is_partitioned(connection, "blocks")


async def test_a_failure_is_told_and_tried_again(url: str, connection: Connection) -> None:
    await connection.execute("INSERT INTO transfers SELECT '', 0, block_number, '', '', '', 1 "
                             "FROM transfers LIMIT 1")  # fmt: skip
    errors: list[str | None] = []

    async def correct(_seconds: float) -> None:
        pending = await background_migrations.list_pending(connection)
        errors.extend(migration.error for migration in pending if migration.table == "transfers")
        await connection.execute("DELETE FROM transfers WHERE block_hash = ''")

    await BackgroundMigrations(url, lambda: True, correct).run()

    assert errors == ["23505 transfers_by_height"]
    assert await background_migrations.list_pending(connection) == ()


async def test_a_database_that_refuses_the_user_for_a_while_ends_nothing(
    url: str, connection: Connection
) -> None:
    """As while the password of the user is changed."""
    await connection.execute("CREATE ROLE converter SUPERUSER NOLOGIN PASSWORD 'secret'")
    pauses: list[float] = []

    async def admit(seconds: float) -> None:
        pauses.append(seconds)
        await connection.execute("ALTER ROLE converter LOGIN")

    address = url.rpartition("@")[2]
    try:
        migrations = BackgroundMigrations(
            f"postgresql://converter:secret@{address}", lambda: True, admit
        )
        await migrations.run()
    finally:
        await connection.execute("REASSIGN OWNED BY converter TO CURRENT_USER")
        await connection.execute("DROP ROLE converter")

    assert len(pauses) == 1
    assert await background_migrations.list_pending(connection) == ()


async def test_only_one_process_runs_them_and_only_while_it_may(
    url: str, connection: Connection
) -> None:
    looks = 0

    async def pause(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0.01)

    idle = asyncio.create_task(BackgroundMigrations(url, lambda: False, pause).run())
    await until(lambda: asyncio.sleep(0, looks > 3))
    assert len(await background_migrations.list_pending(connection)) == len(TABLES) + len(OTHERS)
    idle.cancel()

    await asyncio.gather(*(BackgroundMigrations(url, lambda: True, pause).run() for _ in range(3)))
    assert await background_migrations.list_pending(connection) == ()


async def test_what_a_newer_version_has_entered_is_left_to_it(
    url: str, connection: Connection
) -> None:
    await connection.execute(
        "INSERT INTO background_migrations VALUES ('renumber blocks', 'blocks')"
    )
    migrations = BackgroundMigrations(url, lambda: True)
    await asyncio.gather(migrations.run(), migrations.run())
    (left,) = await background_migrations.list_pending(connection)
    assert (left.name, left.step) == ("renumber blocks", None)
