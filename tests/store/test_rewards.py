"""Rewards leave the queue in order, to one taker each, and come back unchanged."""

from uuid import uuid4

from ltzd.store import lanes, rewards, transactions
from ltzd.store.database import Pool, session, transaction
from ltzd.values import Hash32
from tests.support.core import (
    MINTER,
    a_hash,
    an_attempt,
    an_intent,
    queue_reward,
    queue_rewards,
    value,
)
from tests.support.fake_node import CHAIN_ID


async def test_two_takers_get_disjoint_batches_without_waiting(pool: Pool) -> None:
    ids = await queue_rewards(pool, 10)

    async with transaction(pool) as first, transaction(pool) as second:
        one = await rewards.take_queued(first, 4)
        other = await rewards.take_queued(second, 100)

    assert [reward.id for reward in one] == ids[:4]
    assert [reward.id for reward in other] == ids[4:]


async def test_what_is_taken_and_rolled_back_is_taken_again(pool: Pool) -> None:
    ids = await queue_rewards(pool, 3)
    for _ in range(2):
        async with transaction(pool) as connection:
            assert [reward.id for reward in await rewards.take_queued(connection, 100)] == ids


async def test_a_reward_with_a_transaction_or_a_mint_is_not_queued(pool: Pool) -> None:
    tied, minted, waiting = await queue_rewards(pool, 3)
    async with transaction(pool) as connection:
        lane = await lanes.begin_term(connection, CHAIN_ID, MINTER.address, "mint", 0)
        await transactions.store_signed(connection, lane, an_intent(0, [tied]), an_attempt("a"))
        await connection.execute(
            "UPDATE rewards SET mint_block_number = 1, mint_block_hash = $2, "
            "mint_transaction_hash = $2 WHERE id = $1",
            minted,
            a_hash("block"),
        )
        assert [reward.id for reward in await rewards.take_queued(connection, 9)] == [waiting]


async def test_a_reward_that_comes_back_keeps_its_reference_and_its_place(pool: Pool) -> None:
    ids = await queue_rewards(pool, 3)
    async with transaction(pool) as connection:
        lane = await lanes.begin_term(connection, CHAIN_ID, MINTER.address, "mint", 0)
        intent = an_intent(0, ids[:2], first_seq=5)
        row, _ = await transactions.store_signed(connection, lane, intent, an_attempt("a"))

        assert await rewards.requeue(connection, row) == 2
        assert await rewards.requeue(connection, row) == 0

        again = await rewards.take_queued(connection, 9)
    assert [(reward.id, reward.seq) for reward in again] == [
        (ids[0], 5),
        (ids[1], 6),
        (ids[2], None),
    ]


async def test_a_minted_reward_never_comes_back(pool: Pool) -> None:
    ids = await queue_rewards(pool, 2)
    async with transaction(pool) as connection:
        lane = await lanes.begin_term(connection, CHAIN_ID, MINTER.address, "mint", 0)
        row, _ = await transactions.store_signed(
            connection, lane, an_intent(0, ids), an_attempt("a")
        )
        await connection.execute(
            "UPDATE rewards SET mint_block_number = 1, mint_block_hash = $2, "
            "mint_transaction_hash = $2 WHERE id = $1",
            ids[0],
            a_hash("block"),
        )
        assert await rewards.requeue(connection, row) == 1
        assert [reward.id for reward in await rewards.take_queued(connection, 9)] == [ids[1]]


async def test_a_hash_is_shown_once_it_is_published_or_minted(pool: Pool) -> None:
    signed, published, minted, queued = await queue_rewards(pool, 4)
    async with transaction(pool) as connection:
        lane = await lanes.begin_term(connection, CHAIN_ID, MINTER.address, "mint", 0)
        for nonce, reward in enumerate((signed, published, minted)):
            intent = an_intent(nonce, [reward], first_seq=nonce)
            await transactions.store_signed(connection, lane, intent, an_attempt(f"{nonce}"))
        await transactions.mark_published(connection, a_hash("1"))
        await connection.execute(
            "UPDATE rewards SET mint_block_number = 1, mint_block_hash = $2, "
            "mint_transaction_hash = $3 WHERE id = $1",
            minted,
            a_hash("block"),
            a_hash("another transaction"),
        )
    async with session(pool) as connection:
        shown = await rewards.published_hashes(
            connection, [signed, published, minted, queued, uuid4()]
        )
    assert shown == {
        published: Hash32(a_hash("1")),
        minted: Hash32(a_hash("another transaction")),
    }


async def test_the_oldest_in_the_queue_is_known_until_it_leaves(pool: Pool) -> None:
    async with session(pool) as connection:
        assert await rewards.oldest_queued_at(connection) is None
        reward = await queue_reward(connection)
        created = await value(pool, "SELECT created_at FROM rewards WHERE id = $1", reward)
        assert await rewards.oldest_queued_at(connection) == created
