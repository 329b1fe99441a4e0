"""A lane's term is fenced by its epoch; its counters continue across terms."""

from ltzd.store.database import Pool, session
from ltzd.store.operator import lanes
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT
from tests.support.rows.core import MINTER, a_lane


async def counters(pool: Pool) -> tuple[int | None, int | None]:
    async with session(pool) as connection:
        return (
            await lanes.next_nonce(connection, CHAIN_ID, MINTER.address),
            await lanes.next_seq(connection, CHAIN_ID, LTZ_AT),
        )


async def test_a_wallet_without_a_lane_has_no_counters(pool: Pool) -> None:
    assert await counters(pool) == (None, None)


async def test_a_new_lane_begins_at_the_chains_nonce(pool: Pool) -> None:
    lane = await a_lane(pool, first_nonce=7, first_seq=512)

    assert (lane.epoch, await counters(pool)) == (1, (7, 512))


async def test_a_later_term_increments_the_epoch_and_keeps_the_counters(pool: Pool) -> None:
    old = await a_lane(pool, first_nonce=7, first_seq=512)
    new = await a_lane(pool, first_nonce=99, first_seq=0)

    assert new.epoch == old.epoch + 1
    assert await counters(pool) == (7, 512)
