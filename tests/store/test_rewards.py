"""Rewards leave the queue in order and come back unchanged."""

from uuid import UUID, uuid4

from ltzd.store import rewards, transactions
from ltzd.store.database import Connection, Pool, session
from ltzd.values import Hash32
from tests.support.core import a_hash, a_lane, an_attempt, an_intent, queue_rewards


async def ids_queued(pool: Pool, limit: int = 100) -> list[UUID]:
    async with session(pool) as connection:
        return [reward.id for reward in await rewards.queued(connection, limit)]


async def mint(connection: Connection, reward: UUID, transaction_hash: Hash32) -> None:
    """What the indexer writes."""
    await connection.execute(
        "UPDATE rewards SET mint_block_number = 1, mint_block_hash = $2, "
        "mint_transaction_hash = $3 WHERE id = $1",
        reward,
        a_hash("block"),
        transaction_hash,
    )


async def test_the_oldest_rewards_leave_the_queue_first(pool: Pool) -> None:
    ids = await queue_rewards(pool, 5)

    assert await ids_queued(pool, 2) == ids[:2]
    assert await ids_queued(pool) == ids


async def test_rewards_that_are_left_out_make_room_for_the_next(pool: Pool) -> None:
    ids = await queue_rewards(pool, 4)
    async with session(pool) as connection:
        others = await rewards.queued(connection, 2, {ids[0], ids[2], uuid4()})

    assert [reward.id for reward in others] == [ids[1], ids[3]]


async def test_a_reward_with_a_transaction_or_a_mint_is_not_queued(pool: Pool) -> None:
    tied, minted, waiting = await queue_rewards(pool, 3)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        await transactions.store_signed(connection, lane, an_intent(0, [tied]), an_attempt("a"))
        await mint(connection, minted, a_hash("a"))

    assert await ids_queued(pool) == [waiting]


async def test_a_reward_that_comes_back_keeps_its_reference_and_its_place(pool: Pool) -> None:
    ids = await queue_rewards(pool, 3)
    lane = await a_lane(pool, first_seq=5)
    async with session(pool) as connection:
        intent = an_intent(0, ids[:2], 5)
        row, _ = await transactions.store_signed(connection, lane, intent, an_attempt("a"))

        assert await rewards.requeue(connection, row) == 2
        assert await rewards.requeue(connection, row) == 0

        again = await rewards.queued(connection, 9)
    assert [(reward.id, reward.seq) for reward in again] == [
        (ids[0], 5),
        (ids[1], 6),
        (ids[2], None),
    ]


async def test_a_minted_reward_never_comes_back(pool: Pool) -> None:
    ids = await queue_rewards(pool, 2)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        intent = an_intent(0, ids)
        row, _ = await transactions.store_signed(connection, lane, intent, an_attempt("a"))
        await mint(connection, ids[0], a_hash("a"))

        assert await rewards.requeue(connection, row) == 1
    assert await ids_queued(pool) == [ids[1]]


async def test_a_hash_is_shown_once_it_is_published_or_minted(pool: Pool) -> None:
    signed, published, minted, queued = await queue_rewards(pool, 4)
    lane = await a_lane(pool)
    async with session(pool) as connection:
        for nonce, reward in enumerate((signed, published, minted)):
            intent = an_intent(nonce, [reward], nonce)
            await transactions.store_signed(connection, lane, intent, an_attempt(f"{nonce}"))
        await transactions.mark_published(connection, [a_hash("1")])
        await mint(connection, minted, a_hash("another transaction"))
        shown = await rewards.published_hashes(
            connection, [signed, published, minted, queued, uuid4()]
        )
    assert shown == {published: a_hash("1"), minted: a_hash("another transaction")}
