"""A claimed reward is left to its lane while this lane is served; storing a mint decides."""

import asyncio
from uuid import UUID

import pytest

from ltzd.errors import LaneLost
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import lanes, rewards, transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.leases import lane_lease
from ltzd.store.operator.transactions import RewardsTaken
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT
from tests.support.rows.core import (
    a_lane,
    a_wallet,
    an_attempt,
    an_intent,
    queue_reward,
    queue_rewards,
    value,
)


async def another_lane(pool: Pool, number: int = 1) -> Lane:
    """Begins a term of another wallet, which is served, with references from 256 on."""
    async with transaction(pool) as connection:
        await lanes.create_counter(connection, CHAIN_ID, LTZ_AT, 256)
        lane = await lanes.begin_term(connection, CHAIN_ID, a_wallet(number), "mint", 0)
    await lease(pool, lane, seconds=60)
    return lane


async def lease(pool: Pool, lane: Lane, seconds: float) -> None:
    """Gives the lane a lease that ends in so many seconds."""
    await value(
        pool,
        """
        INSERT INTO leases (name, holder, process, pid, backend_start, taken_at, renewed_at,
                            expires_at)
        VALUES ($1, gen_random_uuid(), 'a test', 1, now(), now(), now(),
                now() + make_interval(secs => $2))
            ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at
     RETURNING 1
        """,
        lane_lease(lane.chain_id, lane.wallet),
        seconds,
    )


async def queued(pool: Pool, lane: Lane | None = None, limit: int = 100) -> list[UUID]:
    async with session(pool) as connection:
        return [reward.id for reward in await rewards.queued(connection, limit, lane=lane)]


async def claim(pool: Pool, lane: Lane, ids: list[UUID]) -> set[UUID]:
    async with session(pool) as connection:
        return await rewards.claim(connection, lane, ids)


async def test_other_lanes_neither_see_nor_claim_a_claimed_reward(pool: Pool) -> None:
    ids = await queue_rewards(pool, 4)
    first, second = await another_lane(pool, 1), await another_lane(pool, 2)
    assert await claim(pool, first, ids[:2]) == set(ids[:2])

    assert await queued(pool, first) == ids
    assert await queued(pool, second) == await queued(pool) == ids[2:]
    assert await claim(pool, second, ids[1:3]) == {ids[2]}
    assert await queued(pool, first) == [ids[0], ids[1], ids[3]]


@pytest.mark.parametrize("kind", [1, 2])
async def test_payments_are_claimed_like_rewards_of_brands(pool: Pool, kind: int) -> None:
    async with transaction(pool) as connection:
        ids = [await queue_reward(connection, kind=kind) for _ in range(3)]
    first, second = await another_lane(pool, 1), await another_lane(pool, 2)
    await claim(pool, first, ids[:1])
    assert await queued(pool, second) == ids[1:]
    async with session(pool) as connection:
        saved = await rewards.queued(connection, 9, saving_for=ids[0], lane=second)
    assert [reward.id for reward in saved] == ids[1:]


async def test_a_reward_that_another_statement_has_locked_is_left_out_at_once(pool: Pool) -> None:
    ids = await queue_rewards(pool, 2)
    lane = await another_lane(pool)
    async with transaction(pool) as other:
        await other.execute("SELECT FROM rewards WHERE id = $1 FOR UPDATE", ids[0])
        async with asyncio.timeout(20):
            assert await claim(pool, lane, ids) == {ids[1]}
    assert await claim(pool, lane, ids) == set(ids)


async def test_of_many_lanes_at_once_each_claims_other_rewards(pool: Pool) -> None:
    ids = await queue_rewards(pool, 30)
    all_lanes = [await another_lane(pool, number) for number in range(1, 9)]
    claimed = await asyncio.gather(*(claim(pool, lane, ids) for lane in all_lanes))
    assert sum(map(len, claimed)) == len(set().union(*claimed)) <= 30
    rest = [await claim(pool, all_lanes[0], await queued(pool, all_lanes[0]))]
    assert set().union(*claimed, *rest) == set(ids)


async def test_only_queued_rewards_are_claimed(pool: Pool) -> None:
    signed, failed, above, minted, waiting = await queue_rewards(pool, 5)
    lane, other = await a_lane(pool), await another_lane(pool)
    async with session(pool) as connection:
        await transactions.store_signed(connection, lane, an_intent(0, [signed]), an_attempt("a"))
        await rewards.fail(connection, lane, {failed: "bad"})
        await rewards.set_above_limit(connection, lane, [above])
        await connection.execute(
            "UPDATE rewards SET mint_block_number = 1, mint_block_hash = id::text::bytea, "
            "mint_transaction_hash = id::text::bytea WHERE id = $1",
            minted,
        )
    assert await claim(pool, other, [signed, failed, above, minted, waiting]) == {waiting}


async def test_a_given_back_reward_is_free_at_once(pool: Pool) -> None:
    ids = await queue_rewards(pool, 3)
    first, second = await another_lane(pool, 1), await another_lane(pool, 2)
    await claim(pool, first, ids[:2])
    await claim(pool, second, ids[2:])
    async with session(pool) as connection:
        await rewards.give_back(connection, first, ids)
    assert await queued(pool, second) == ids
    assert await queued(pool, first) == ids[:2], "a lane gives back its own claims only"


async def test_a_new_term_ends_the_claims_of_the_old_one(pool: Pool) -> None:
    ids = await queue_rewards(pool, 1)
    first, second = await another_lane(pool, 1), await another_lane(pool, 2)
    await claim(pool, first, ids)
    again = await another_lane(pool, 1)
    assert await queued(pool, again) == await queued(pool, second) == ids
    assert await claim(pool, second, ids) == set(ids)
    assert await claim(pool, first, ids) == set()


async def test_the_claims_of_a_lane_without_a_lease_are_free(pool: Pool) -> None:
    ids = await queue_rewards(pool, 1)
    first, second = await another_lane(pool, 1), await another_lane(pool, 2)
    await claim(pool, first, ids)
    assert await queued(pool, second) == []
    await lease(pool, first, seconds=-1)
    assert await queued(pool, second) == ids
    assert await claim(pool, second, ids) == set(ids)


async def test_storing_a_mint_ends_its_claims(pool: Pool) -> None:
    ids = await queue_rewards(pool, 2)
    lane = await a_lane(pool)
    await lease(pool, lane, seconds=60)
    await claim(pool, lane, ids)
    async with session(pool) as connection:
        row = await transactions.store_signed(connection, lane, an_intent(0, ids), an_attempt("a"))
        assert await rewards.requeue(connection, row) == 2
    assert await queued(pool, await another_lane(pool)) == ids


async def test_a_frozen_lane_stores_no_mint_of_rewards_that_another_lane_has_claimed(
    pool: Pool,
) -> None:
    """The lane's term is not over, since no other process serves its wallet."""
    ids = await queue_rewards(pool, 2)
    frozen, other = await a_lane(pool), await another_lane(pool)
    await lease(pool, frozen, seconds=60)
    await claim(pool, frozen, ids)
    await lease(pool, frozen, seconds=-1)
    assert await claim(pool, other, ids[:1]) == {ids[0]}
    async with session(pool) as connection:
        with pytest.raises(RewardsTaken):
            await transactions.store_signed(connection, frozen, an_intent(0, ids), an_attempt("a"))
        await transactions.store_signed(
            connection, frozen, an_intent(0, ids[1:]), an_attempt("rest")
        )


async def test_a_frozen_lane_whose_wallet_is_served_elsewhere_stores_nothing(pool: Pool) -> None:
    ids = await queue_rewards(pool, 1)
    frozen = await a_lane(pool)
    await claim(pool, frozen, ids)
    taken_over = await a_lane(pool)
    async with session(pool) as connection:
        with pytest.raises(LaneLost):
            await transactions.store_signed(connection, frozen, an_intent(0, ids), an_attempt("a"))
    assert await queued(pool, taken_over) == ids


async def test_a_claim_that_waits_for_no_disk_is_visible_to_all_at_once(pool: Pool) -> None:
    ids = await queue_rewards(pool, 1)
    first, second = await another_lane(pool, 1), await another_lane(pool, 2)
    async with session(pool) as connection:
        await connection.execute("SET synchronous_commit TO on")
        await rewards.claim(connection, first, ids)
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
    assert await queued(pool, second) == []


async def test_a_reward_is_contended_while_another_mint_lane_is_served(pool: Pool) -> None:
    ids = await queue_rewards(pool, 1)
    lane = await another_lane(pool, 1)

    async def is_contended() -> bool:
        async with session(pool) as connection:
            (waiting,) = await rewards.queued(connection, 1, lane=lane)
        return waiting.is_contended

    assert not await is_contended()
    other = await another_lane(pool, 2)
    assert await is_contended()
    await lease(pool, other, seconds=-1)
    assert not await is_contended()
    await claim(pool, other, ids)
    assert await is_contended(), "the claim of a dead lane must be replaced"
