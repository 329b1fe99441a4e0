"""The cursor moves by compare-and-set, and finality only upwards and never past it."""

import pytest

from ltzd.errors import LaneLost
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import BlockRow, ChainIdentity, Cursor
from tests.support.chain.fake_node import CHAIN_ID, FakeNode
from tests.support.rows.core import a_hash, follow

BASE = FakeNode().blocks[0].hash


@pytest.fixture
async def chain(pool: Pool) -> ChainIdentity:
    return await follow(pool, FakeNode())


async def move(pool: Pool, epoch: int, was: bytes, number: int) -> None:
    async with transaction(pool) as connection:
        await chains.move_cursor(
            connection, CHAIN_ID, epoch, a_hash(was.decode()) if was else BASE,
            (number, a_hash(f"{number}")), number,
        )  # fmt: skip


async def begin(pool: Pool) -> int:
    async with session(pool) as connection:
        return await chains.begin_term(connection, CHAIN_ID)


async def cursor(pool: Pool) -> Cursor:
    async with session(pool) as connection:
        return await chains.cursor(connection, CHAIN_ID)


async def test_a_chain_is_adopted_once(pool: Pool, chain: ChainIdentity) -> None:
    epoch = await begin(pool)
    await move(pool, epoch, b"", 9)
    await follow(pool, FakeNode())

    assert (await cursor(pool)).number == 9
    async with session(pool) as connection:
        assert await chains.identity(connection) == chain


async def test_a_new_database_follows_no_chain(pool: Pool) -> None:
    async with session(pool) as connection:
        assert await chains.identity(connection) is None


async def test_the_cursor_moves_only_by_compare_and_set(pool: Pool, chain: ChainIdentity) -> None:
    epoch = await begin(pool)
    await move(pool, epoch, b"", 1)
    await move(pool, epoch, b"1", 2)

    with pytest.raises(LaneLost):
        await move(pool, epoch, b"1", 3)

    assert await cursor(pool) == Cursor(2, a_hash("2"), 0)


async def test_a_new_term_fences_off_the_old_follower(pool: Pool, chain: ChainIdentity) -> None:
    old = await begin(pool)
    new = await begin(pool)
    assert new == old + 1

    with pytest.raises(LaneLost):
        await move(pool, old, b"", 1)
    async with session(pool) as connection:
        await chains.raise_finality(connection, CHAIN_ID, old, 5)

    assert await cursor(pool) == Cursor(0, BASE, 0)
    await move(pool, new, b"", 1)


async def test_finality_rises_to_the_cursor_at_most_and_never_falls(
    pool: Pool, chain: ChainIdentity
) -> None:
    epoch = await begin(pool)
    await move(pool, epoch, b"", 10)
    seen = []
    for final in (4, 2, 4, 50):
        async with session(pool) as connection:
            await chains.raise_finality(connection, CHAIN_ID, epoch, final)
        seen.append((await cursor(pool)).final_number)
    assert seen == [4, 4, 4, 10]


async def test_moving_the_cursor_back_lowers_finality_with_it(
    pool: Pool, chain: ChainIdentity
) -> None:
    epoch = await begin(pool)
    await move(pool, epoch, b"", 10)
    async with session(pool) as connection:
        await chains.raise_finality(connection, CHAIN_ID, epoch, 8)
    await move(pool, epoch, b"10", 6)

    assert (await cursor(pool)).final_number == 6


async def test_a_block_is_settled_when_deep_enough_and_seen_long_enough_ago(
    pool: Pool, chain: ChainIdentity
) -> None:
    epoch = await begin(pool)
    async with transaction(pool) as connection:
        blocks = [
            BlockRow(number, a_hash(f"{number}"), a_hash(f"{number - 1}"), 1_700_000_000)
            for number in range(1, 11)
        ]
        await chains.insert_blocks(connection, blocks)
        await chains.move_cursor(connection, CHAIN_ID, epoch, BASE, (10, a_hash("10")), 10)
        await connection.execute(
            "UPDATE blocks SET seen_at = now() - make_interval(secs => (100 - 10 * number)::float8)"
        )
    async with session(pool) as connection:
        assert await chains.settled_number(connection, 0, 0) == 10
        assert await chains.settled_number(connection, 3, 0) == 7
        assert await chains.settled_number(connection, 3, 55) == 4
        assert await chains.settled_number(connection, 8, 55) == 2
        assert await chains.settled_number(connection, 64, 0) is None
        assert await chains.settled_number(connection, 0, 1_000) is None
        assert await chains.newest_blocks(connection, 4, 2) == [(4, a_hash("4")), (3, a_hash("3"))]
