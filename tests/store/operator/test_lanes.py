"""A lane's term is fenced by its epoch; its counters go on in later terms, and no two share any."""

import asyncio

import pytest
from msgspec.structs import replace

from ltzd.errors import LaneLost
from ltzd.rules.operator.references import LaneReferences
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.operator import lanes
from ltzd.store.operator.lanes import Lane
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT
from tests.support.rows.core import MINTER, a_lane, a_wallet, value


async def counters(pool: Pool) -> tuple[int | None, LaneReferences]:
    async with session(pool) as connection:
        return (
            await lanes.next_nonce(connection, CHAIN_ID, MINTER.address),
            await lanes.references(connection, CHAIN_ID, MINTER.address),
        )


async def counter(pool: Pool) -> int | None:
    async with session(pool) as connection:
        return await lanes.next_seq(connection, CHAIN_ID, LTZ_AT)


async def begin(pool: Pool, wallet: int, first_seq: int = 0) -> Lane:
    async with transaction(pool) as connection:
        await lanes.create_counter(connection, CHAIN_ID, LTZ_AT, first_seq)
        return await lanes.begin_term(connection, CHAIN_ID, a_wallet(wallet), "mint", 0)


async def take_word(pool: Pool, lane: Lane, held: LaneReferences) -> LaneReferences:
    async with session(pool) as connection:
        taken = await lanes.take_word(connection, lane, LTZ_AT, held)
        assert await lanes.references(connection, CHAIN_ID, lane.wallet) == taken
    return taken


async def test_a_wallet_without_a_lane_has_no_counters(pool: Pool) -> None:
    assert await counters(pool) == (None, LaneReferences())
    assert await counter(pool) is None


async def test_a_new_lane_begins_at_the_chains_nonce(pool: Pool) -> None:
    lane = await a_lane(pool, first_nonce=7, first_seq=512)

    assert (lane.epoch, await counters(pool)) == (1, (7, LaneReferences(512, 768)))


async def test_a_later_term_increments_the_epoch_and_keeps_the_counters(pool: Pool) -> None:
    old = await a_lane(pool, first_nonce=7, first_seq=512)
    new = await a_lane(pool, first_nonce=99, first_seq=0)

    assert new.epoch == old.epoch + 1
    assert await counters(pool) == (7, LaneReferences(512, 768))


# --- references ---------------------------------------------------------------------------------


async def test_each_lane_takes_whole_words_of_its_own(pool: Pool) -> None:
    first, second = await begin(pool, 1), await begin(pool, 2)
    none = LaneReferences()
    mine = await take_word(pool, first, none)
    assert mine == LaneReferences(0, 256)
    assert await take_word(pool, second, none) == LaneReferences(256, 512)
    assert await take_word(pool, first, mine) == LaneReferences(0, 256, 512)
    assert await counter(pool) == 768


@pytest.mark.parametrize(("before", "first"), [(41, 256), (256, 256), (511, 512)])
async def test_a_counter_within_a_word_moves_to_the_next_word(
    pool: Pool, before: int, first: int
) -> None:
    lane = await begin(pool, 1, before)
    assert await take_word(pool, lane, LaneReferences()) == LaneReferences(first, first + 256)


async def test_references_that_are_not_as_the_lane_believes_end_its_term(pool: Pool) -> None:
    lane = await begin(pool, 1)
    held = await take_word(pool, lane, LaneReferences())
    for wrong in (LaneReferences(), LaneReferences(1, 256), LaneReferences(0, 512)):
        with pytest.raises(LaneLost):
            await take_word(pool, lane, wrong)
    await begin(pool, 1)
    with pytest.raises(LaneLost):
        await take_word(pool, lane, held)
    both = await take_word(pool, replace(lane, epoch=2), held)
    with pytest.raises(LaneLost):
        await take_word(pool, replace(lane, epoch=2), held)
    assert both.following_seq == 256


async def test_of_many_lanes_at_once_no_two_take_the_same_word(pool: Pool) -> None:
    all_lanes = [await begin(pool, number) for number in range(1, 13)]
    taken = await asyncio.gather(*(take_word(pool, lane, LaneReferences()) for lane in all_lanes))
    assert sorted(each.next_seq for each in taken) == list(range(0, 12 * 256, 256))


async def test_only_lanes_that_are_served_and_not_paused_work(pool: Pool) -> None:
    first, second = await begin(pool, 1), await begin(pool, 2)
    await begin(pool, 3)
    async with session(pool) as connection:
        await lanes.report_working(connection, first)
        await lanes.report_working(connection, second)
        assert await lanes.count_working(connection, CHAIN_ID, "mint") == 2
        await lanes.report_working(connection, second, "funds")
        assert await lanes.count_working(connection, CHAIN_ID, "mint") == 1
        assert await lanes.count_working(connection, CHAIN_ID, "relay") == 0
    await value(pool, "UPDATE lanes SET served_at = now() - interval '2 minutes' RETURNING 1")
    async with session(pool) as connection:
        assert await lanes.count_working(connection, CHAIN_ID, "mint") == 0


async def test_a_write_that_names_no_epoch_is_refused_after_the_term(pool: Pool) -> None:
    async with transaction(pool) as connection:
        first = await lanes.begin_term(connection, CHAIN_ID, a_wallet(1), "relay", 0)
        await lanes.require_term(connection, first)
        second = await lanes.begin_term(connection, CHAIN_ID, a_wallet(1), "relay", 0)
        with pytest.raises(LaneLost):
            await lanes.require_term(connection, first)
        await lanes.require_term(connection, second)


async def a_minter(connection: Connection, number: int, kind: str, chain_id: int = 1) -> None:
    await connection.execute(
        "INSERT INTO lanes (chain_id, wallet, kind, next_nonce) VALUES ($1, $2, $3, 0)",
        chain_id,
        a_wallet(number),
        kind,
    )


async def test_minters_are_the_wallets_that_mint_on_this_chain(pool: Pool) -> None:
    async with session(pool) as connection:
        assert await lanes.list_mint_wallets(connection, 1) == []
        await a_minter(connection, 1, "mint")
        await a_minter(connection, 2, "relay")
        await a_minter(connection, 3, "mint")
        await a_minter(connection, 4, "mint", chain_id=2)
        assert sorted(await lanes.list_mint_wallets(connection, 1)) == [a_wallet(1), a_wallet(3)]
