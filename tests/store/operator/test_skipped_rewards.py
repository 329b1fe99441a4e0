"""A reward gets a new reference once a final mint of somebody else's has used its own."""

from uuid import UUID

from ltzd.store.database import Connection, Pool, session
from ltzd.store.operator import rewards, transactions
from ltzd.values import reward_reference
from tests.support.chain.fake_node import FakeNode
from tests.support.rows.core import (
    a_hash,
    a_lane,
    a_wallet,
    an_attempt,
    an_intent,
    follow,
    queue_rewards,
)

THIEFS = UUID(int=0xEE)


async def use(connection: Connection, seq: int, block: int = 0, reward: UUID = THIEFS) -> None:
    """Records a mint as the indexer does; by default not of the reward with this seq."""
    await connection.execute(
        "INSERT INTO mints VALUES ($1, $2, $3, $4, $5, $6, 1)",
        *(a_hash(f"block {block}"), seq, block, a_hash("theirs"), a_wallet(9)),
        reward_reference(reward, 1, seq),
    )


async def seqs(connection: Connection) -> list[tuple[int | None, bool]]:
    """Each reward's seq and whether it has a transaction, in the order of the queue."""
    rows = await connection.fetch(
        "SELECT seq, transaction_id IS NOT NULL FROM rewards ORDER BY position"
    )
    return [(row[0], row[1]) for row in rows]


async def test_only_the_skipped_rewards_of_a_transaction_are_renewed(pool: Pool) -> None:
    await follow(pool, FakeNode())
    lane, ids = await a_lane(pool), await queue_rewards(pool, 5)
    async with session(pool) as connection:
        first = await transactions.store_signed(
            connection, lane, an_intent(0, ids[:4]), an_attempt("a")
        )
        other = await transactions.store_signed(
            connection, lane, an_intent(1, ids[4:], 4), an_attempt("b")
        )
        await use(connection, 0)
        await use(connection, 2, reward=ids[2])
        await connection.execute(
            "UPDATE rewards SET mint_block_number = 0, mint_block_hash = $2, "
            "mint_transaction_hash = $2 WHERE id = $1",
            *(ids[2], a_hash("a")),
        )
        await use(connection, 3, block=1)
        await use(connection, 4)

        assert await rewards.count_skipped(connection, [first]) == {first: 1}
        assert await rewards.count_skipped(connection, [first, other]) == {first: 1, other: 1}
        assert await rewards.renew_skipped(connection, first) == 1
        assert await seqs(connection) == [
            (None, False),
            *((seq, True) for seq in (1, 2, 3, 4)),
        ], "block 1 is not final"
        assert await rewards.renew_skipped(connection, first) == 0
        assert [reward.id for reward in await rewards.queued(connection, 9)] == ids[:1]


async def test_of_queued_rewards_only_the_named_whose_references_are_used_are_renewed(
    pool: Pool,
) -> None:
    await follow(pool, FakeNode())
    lane, ids = await a_lane(pool), await queue_rewards(pool, 4)
    async with session(pool) as connection:
        back = await transactions.store_signed(
            connection, lane, an_intent(0, ids[:3]), an_attempt("a")
        )
        await transactions.store_signed(connection, lane, an_intent(1, ids[3:], 3), an_attempt("b"))
        await rewards.requeue(connection, back)
        for seq in (0, 2, 3):
            await use(connection, seq)

        assert await rewards.renew_queued(connection, [ids[0], ids[1], ids[3]]) == 1
        assert await seqs(connection) == [(None, False), (1, False), (2, False), (3, True)]
