"""During a rebuild of the index, lanes mint once and settle transactions correctly."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ltzd.indexer.follower import Follower
from ltzd.store.database import Pool, transaction
from ltzd.store.indexer import chains
from tests.support.chain.fake_node import CHAIN_ID, FakeNode
from tests.support.chain.mint_world import World, observer
from tests.support.chain.rebuilding import a_rebuilder, is_over
from tests.support.rows.core import running, states, value
from tests.support.waiting import until

__all__ = ["observer"]


@pytest_asyncio.fixture
async def world(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[World]:
    """Three rewards whose mint is final, and two whose mint is in the newest block."""
    node = FakeNode()
    node.mine()
    node.final_depth = 3
    world = World(database_url, pool, observer, node)
    async with running((await world.follow()).run()), world.serving():
        for count, blocks, seen in ((3, 5, ["confirmed"]), (2, 1, ["confirmed", "mined"])):
            await world.queue(count)
            await until(lambda: _has(node))
            node.mine(blocks)
            await world.minted()
            await world.settled(*seen)
    yield world


async def _has(node: FakeNode) -> bool:
    return bool(node.pool)


async def standing_still(world: World) -> Follower:
    """A version that knew only LTZ had a term: the next follower waits for a rebuild."""
    async with transaction(world.observer) as connection:
        await chains.begin_term(connection, CHAIN_ID)
    follower = await world.follow()
    await follower.begin_term()
    assert await value(world.observer, "SELECT stopped_reason FROM chains") is not None
    return follower


@pytest.mark.parametrize("is_reorged", [False, True])
async def test_during_a_rebuild_lanes_mint_once_and_settle_correctly(
    world: World, is_reorged: bool
) -> None:
    follower = await standing_still(world)
    known = "SELECT count(*) FROM rewards WHERE mint_block_hash IS NOT NULL"
    assert await value(world.observer, known) == 5, "a mint was forgotten"
    arrived = len(world.node.arrived)

    async with world.lane() as lane:
        await world.some_polls()
        assert (lane.stopped, len(world.node.arrived)) == (None, arrived)
        assert await states(world.observer) == ["confirmed", "mined"]
        if is_reorged:  # Which the lane learns of by the index, after the swap.
            world.node.forget_blocks(1)
            world.node.mine(2, takes_pool=False)
        await world.queue()
        await until(lambda: _waits(world, 1))
        world.node.mine(6)
        await world.some_polls()

        rebuilder = a_rebuilder(world.pool, world.url, world.node)
        async with running(follower.run(), rebuilder.run()):
            await until(lambda: is_over(world.observer))

            async def are_settled() -> bool:
                world.node.mine()
                return await states(world.observer) == ["confirmed"] * 3

            await until(are_settled)
            await world.minted()
        assert lane.stopped is None
    await world.each_minted_once()


async def _waits(world: World, count: int) -> bool:
    return len(world.node.pool) == count
