"""Revisions 0032, 0034, 0035 and 0036 index tables with rows while these are written."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest_asyncio

from ltzd.store import background_migrations, database, schema_revisions
from ltzd.store.background_migrations import BackgroundMigrations
from ltzd.store.database import Connection
from ltzd.store.migrations import concurrent_indexes, upgrades
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.rows.core import a_hash, a_wallet
from tests.support.services.postgres import Databases
from tests.support.waiting import until

ADDED = [
    "site_redemptions_pending",
    "transactions_mined",
    "transactions_unsuccessful",
    "webhooks_by_state",
]


async def send(connection: Connection, nonce: int) -> None:
    await connection.execute(
        """
        INSERT INTO transactions (chain_id, wallet, nonce, kind, to_address, data, gas_limit, state)
        VALUES ($1, $2, $3, 'mint', $2, '', 1, 'signed')
        """,
        CHAIN_ID,
        a_wallet(1),
        nonce,
    )


@pytest_asyncio.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    """A database of 0031 with a transaction, a redemption and a webhook, migrated."""
    async with databases.fresh() as url:
        connection = await asyncpg.connect(url)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await asyncio.to_thread(upgrades.upgrade, url, "0031")
        await connection.execute(
            """
            INSERT INTO chains (chain_id, genesis_hash, ltz, first_block, cursor_number,
                                cursor_hash, head_number, final_number)
            VALUES ($1, $2, $3, 1, 1, $2, 1, 1)
            """,
            CHAIN_ID,
            a_hash("0"),
            a_wallet(1),
        )
        await send(connection, 0)
        await connection.execute(
            """
            INSERT INTO site_redemptions (id, brand_id, wallet, perk_id, name, category,
                                          collection_id, price, confirmation_code, state,
                                          completed_at)
            VALUES (gen_random_uuid(), $1, $1, gen_random_uuid(), 'Mug', 'goods', 7, 30, 'CODE',
                    'done', now())
            """,
            a_wallet(2),
        )
        await connection.execute(
            "INSERT INTO webhooks (brand_id, kind, subject) VALUES ($1, 'ltz_distributed', $2)",
            a_wallet(2),
            uuid4(),
        )
        await connection.close()
        await schema_revisions.migrate(url)
        yield url


@pytest_asyncio.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(url, "test")
    yield connection
    await connection.close()


async def valid_indexes(connection: Connection) -> list[str]:
    rows = await connection.fetch(
        """
        SELECT indexrelid::regclass::text AS name
          FROM pg_index
         WHERE indexrelid::regclass::text = ANY($1::text[]) AND indisvalid
         ORDER BY 1
        """,
        ADDED,
    )
    return [row["name"] for row in rows]


async def test_the_tables_are_written_while_their_indexes_are_built(
    url: str, connection: Connection
) -> None:
    assert await valid_indexes(connection) == []
    pending = await background_migrations.list_pending(connection)
    tables = {migration.table for migration in pending}
    assert tables >= {"site_redemptions", "transactions", "webhooks"}
    writer = await database.connect(url, "writer")
    await writer.execute("BEGIN")
    await send(writer, 1)
    building = asyncio.create_task(BackgroundMigrations(url, lambda: True).run())

    async def waits_for_the_writer() -> bool:
        waits: bool = await connection.fetchval(
            """
            SELECT EXISTS (SELECT FROM pg_stat_activity
                            WHERE query LIKE 'CREATE INDEX CONCURRENTLY transactions_mined%'
                              AND wait_event_type = 'Lock' AND datname = current_database())
            """
        )
        return waits

    await until(waits_for_the_writer)
    await send(connection, 2)
    await writer.execute("COMMIT")
    await writer.close()
    await building
    assert await valid_indexes(connection) == ADDED
    assert await connection.fetchval("SELECT count(*) FROM transactions") == 3


async def test_an_administrators_limits_for_short_statements_end_no_build(
    url: str, connection: Connection
) -> None:
    """A build that ends before it is done begins anew, and reads the whole table each time."""
    name = await connection.fetchval("SELECT quote_ident(current_database())")
    for limit in ("statement_timeout", "lock_timeout"):
        await connection.execute(f"ALTER DATABASE {name} SET {limit} = '500ms'")
    writer = await database.connect(url, "writer", settings={"statement_timeout": "0"})
    await writer.execute("BEGIN")
    await send(writer, 1)
    building = asyncio.create_task(BackgroundMigrations(url, lambda: True).run())

    async def has_waited_for_longer() -> bool:
        has_waited: bool = await connection.fetchval(
            """
            SELECT EXISTS (SELECT FROM pg_stat_activity
                            WHERE query LIKE 'CREATE INDEX CONCURRENTLY transactions_mined%'
                              AND state = 'active' AND datname = current_database()
                              AND query_start < clock_timestamp() - interval '1 s')
            """
        )
        return has_waited

    await until(has_waited_for_longer)
    await writer.execute("COMMIT")
    await writer.close()
    await building
    assert await valid_indexes(connection) == ADDED


async def test_an_interrupted_index_is_built_anew(url: str, connection: Connection) -> None:
    await connection.execute(
        """
        CREATE INDEX transactions_mined ON transactions (wallet);
        UPDATE pg_index SET indisvalid = false
         WHERE indexrelid = 'transactions_mined'::regclass
        """
    )
    await concurrent_indexes.build_added(connection, "transactions")
    await concurrent_indexes.build_added(connection, "transactions")
    definition = await connection.fetchval("SELECT pg_get_indexdef('transactions_mined'::regclass)")
    assert "(wallet, block_number, block_hash) WHERE" in definition


async def has_former_index(connection: Connection) -> bool:
    has_index: bool = await connection.fetchval(
        "SELECT to_regclass('webhooks_by_brand') IS NOT NULL"
    )
    return has_index


async def test_an_index_stays_until_another_one_has_taken_its_place(
    connection: Connection,
) -> None:
    assert await has_former_index(connection)
    for _ in range(2):
        await concurrent_indexes.replace(connection, "webhooks")
        assert await valid_indexes(connection) == ["webhooks_by_state"]
        assert not await has_former_index(connection)


async def test_a_new_database_has_the_indexes_at_once(databases: Databases) -> None:
    async with databases.fresh() as url:
        connection = await database.connect(url, "test")
        assert await valid_indexes(connection) == ADDED
        assert not await has_former_index(connection)
        assert await background_migrations.list_pending(connection) == ()
        await connection.close()
