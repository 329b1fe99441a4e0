"""Nonces and references are taken in the transaction that uses them, by the lane's holder only."""

import asyncio

import pytest

from ltzd.errors import LostLane
from ltzd.store import lanes
from ltzd.store.database import Pool, session, transaction
from ltzd.store.lanes import Lane
from tests.support.core import MINTER
from tests.support.fake_node import CHAIN_ID, LTZ_AT


@pytest.fixture
async def lane(pool: Pool) -> Lane:
    async with transaction(pool) as connection:
        await lanes.start_seqs(connection, CHAIN_ID, LTZ_AT, 0)
        return await lanes.begin_term(connection, CHAIN_ID, MINTER.address, "mint", 7)


class ChangedMind(Exception):
    pass


async def test_a_new_lane_begins_at_the_nonce_of_the_chain(pool: Pool, lane: Lane) -> None:
    async with transaction(pool) as connection:
        assert await lanes.next_nonce(connection, CHAIN_ID, MINTER.address) == 7
        assert await lanes.reserve_nonce(connection, lane) == 7
        assert await lanes.reserve_nonce(connection, lane) == 8


async def test_a_wallet_without_a_lane_has_no_nonce(pool: Pool) -> None:
    async with session(pool) as connection:
        assert await lanes.next_nonce(connection, CHAIN_ID, MINTER.address) is None
        assert await lanes.next_seq(connection, CHAIN_ID, LTZ_AT) is None


async def test_a_nonce_that_is_rolled_back_is_given_again(pool: Pool, lane: Lane) -> None:
    with pytest.raises(ChangedMind):
        async with transaction(pool) as connection:
            await lanes.reserve_nonce(connection, lane)
            raise ChangedMind
    async with transaction(pool) as connection:
        assert await lanes.reserve_nonce(connection, lane) == 7


async def test_many_connections_never_get_the_same_nonce(pool: Pool, lane: Lane) -> None:
    async def reserve(rolls_back: bool) -> int | None:
        try:
            async with transaction(pool) as connection:
                nonce = await lanes.reserve_nonce(connection, lane)
                await asyncio.sleep(0)
                if rolls_back:
                    raise ChangedMind
                return nonce
        except ChangedMind:
            return None

    nonces = await asyncio.gather(*(reserve(number % 4 == 0) for number in range(40)))

    assert sorted(nonce for nonce in nonces if nonce is not None) == list(range(7, 37))


async def test_a_new_term_shuts_the_old_holder_out(pool: Pool, lane: Lane) -> None:
    async with transaction(pool) as connection:
        newer = await lanes.begin_term(connection, CHAIN_ID, MINTER.address, "mint", 99)
    assert newer.epoch == lane.epoch + 1

    with pytest.raises(LostLane):
        async with transaction(pool) as connection:
            await lanes.reserve_nonce(connection, lane)
    with pytest.raises(LostLane):
        async with transaction(pool) as connection:
            await lanes.check_term(connection, lane)
    async with transaction(pool) as connection:
        await lanes.check_term(connection, newer)
        # The lane's own counter counts, not what the chain shows now.
        assert await lanes.reserve_nonce(connection, newer) == 7


async def test_a_term_cannot_end_under_a_holders_commit(pool: Pool, lane: Lane) -> None:
    async with transaction(pool) as connection:
        await lanes.check_term(connection, lane)
        taking_over = asyncio.create_task(_begin_term(pool))
        await asyncio.wait([taking_over], timeout=0.1)
        assert not taking_over.done()
    assert (await taking_over).epoch == lane.epoch + 1


async def _begin_term(pool: Pool) -> Lane:
    async with transaction(pool) as connection:
        return await lanes.begin_term(connection, CHAIN_ID, MINTER.address, "mint", 7)


async def test_references_have_no_gaps_after_a_rollback(pool: Pool, lane: Lane) -> None:
    async def reserve(count: int) -> int:
        async with transaction(pool) as connection:
            return await lanes.reserve_seqs(connection, CHAIN_ID, LTZ_AT, count)

    assert await reserve(3) == 0
    with pytest.raises(ChangedMind):
        async with transaction(pool) as connection:
            assert await lanes.reserve_seqs(connection, CHAIN_ID, LTZ_AT, 100) == 3
            raise ChangedMind
    assert await reserve(2) == 3
    async with session(pool) as connection:
        assert await lanes.next_seq(connection, CHAIN_ID, LTZ_AT) == 5


async def test_a_counter_is_started_once(pool: Pool, lane: Lane) -> None:
    async with transaction(pool) as connection:
        await lanes.start_seqs(connection, CHAIN_ID, LTZ_AT, 512)
        assert await lanes.next_seq(connection, CHAIN_ID, LTZ_AT) == 0
