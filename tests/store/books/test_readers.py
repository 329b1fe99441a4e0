"""Connections that read one moment side by side; one that cannot is left out."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from ltzd.store import database
from ltzd.store.books.readers import readers_of, side_by_side
from ltzd.store.database import Connection
from tests.support.services.postgres import Databases

Pair = tuple[Connection, Connection]


@pytest_asyncio.fixture
async def pair(database_url: str) -> AsyncIterator[Pair]:
    """Two connections to one database."""
    first, second = [await database.connect(database_url, "test") for _ in range(2)]
    yield first, second
    first.terminate()
    second.terminate()


async def _blocks(connection: Connection) -> tuple[object, int]:
    return connection, await connection.fetchval("SELECT count(*) FROM blocks")


async def test_both_connections_read_one_moment_at_once(pair: Pair, database_url: str) -> None:
    both = asyncio.Barrier(2)

    async def read(connection: Connection) -> tuple[object, int]:
        await both.wait()
        return await _blocks(connection)

    writer = await database.connect(database_url, "test")
    async with readers_of(pair) as readers:
        await writer.execute("INSERT INTO blocks VALUES ('a', 1, 'b', now())")
        async with asyncio.timeout(20):
            answers = await asyncio.gather(readers.read(read), readers.read(read))
    await writer.close()

    assert {connection for connection, _ in answers} == set(pair)
    assert [count for _, count in answers] == [0, 0]
    assert (await _blocks(pair[1]))[1] == 1  # The transaction has ended.


async def test_a_connection_to_another_database_is_left_out(
    pair: Pair, databases: Databases
) -> None:
    async with databases.fresh() as url:
        elsewhere = await database.connect(url, "test")
        async with readers_of([pair[0], elsewhere]) as readers:
            answers = [await readers.read(_blocks) for _ in range(3)]
        assert not elsewhere.is_in_transaction()
        await elsewhere.close()

    assert {connection for connection, _ in answers} == {pair[0]}


async def test_the_first_error_is_raised_as_itself_and_ends_the_other_reads(pair: Pair) -> None:
    async def fail(connection: Connection) -> None:
        await connection.execute("SELECT pg_sleep(0.05)")
        await connection.execute("SELECT 1 FROM no_such_table")

    async def sleep(connection: Connection) -> None:
        await connection.execute("SELECT pg_sleep(60)")

    async def read_all() -> None:
        async with readers_of(pair) as readers, side_by_side() as group:
            for read in (sleep, fail, sleep):
                group.create_task(readers.read(read))

    with pytest.raises(asyncpg.UndefinedTableError):
        await asyncio.wait_for(read_all(), 20)

    assert [(await _blocks(each))[1] for each in pair] == [0, 0]
