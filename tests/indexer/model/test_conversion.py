"""An index with the tables of an earlier version equals the model before, during and after they are
partitioned in the background."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest_asyncio

from ltzd.store import database, schema_revisions
from ltzd.store.background_migrations import BackgroundMigrations
from ltzd.store.database import session
from ltzd.store.migrations import partitioning, upgrades
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.index_model.chain import ModelChain
from tests.support.index_model.index import NEAR, ModelIndex
from tests.support.index_model.node import LogFaultsNode
from tests.support.rows.core import a_hash, a_wallet
from tests.support.services.postgres import Databases


@pytest_asyncio.fixture
async def index(databases: Databases) -> AsyncIterator[ModelIndex]:
    """An index in a database of 0022 that was followed before the newest migrations."""
    async with databases.fresh() as url:
        connection = await asyncpg.connect(url)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await connection.execute("DROP SCHEMA IF EXISTS ltzd_rebuild, ltzd_replaced CASCADE")
        await asyncio.to_thread(upgrades.upgrade, url, "0022")
        await connection.execute(
            """
            INSERT INTO chains (chain_id, genesis_hash, ltz, first_block, epoch, cursor_number,
                                cursor_hash, head_number, final_number)
            VALUES ($1, $2, $3, 1, 5, 0, $2, 0, 0)
            """,
            CHAIN_ID,
            a_hash("0"),
            a_wallet(1),
        )
        await connection.close()
        await schema_revisions.migrate(url)
        pool = await database.open_pool(url)
        index = ModelIndex(pool, url, ModelChain(LogFaultsNode(), seed=24), NEAR)
        await index.start()
        yield index
        pool.terminate()


async def layouts(index: ModelIndex) -> set[bool]:
    async with session(index.pool) as connection:
        return {await partitioning.is_partitioned(connection, name) for name in partitioning.TABLES}


async def live(index: ModelIndex) -> None:
    """Blocks, a reorg, and a restart."""
    index.chain.mine(20)
    await index.catch_up()
    await index.happen("reorg", 12)
    await index.catch_up()
    await index.happen("restart", 0)


async def test_the_index_equals_the_model_while_its_tables_are_partitioned(
    index: ModelIndex,
) -> None:
    await live(index)
    assert await layouts(index) == {False}

    converting = asyncio.create_task(BackgroundMigrations(index.url, lambda: True).run())
    await live(index)
    await converting

    assert await layouts(index) == {True}
    await live(index)
