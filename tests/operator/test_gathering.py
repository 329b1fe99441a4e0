"""An idle lane signs at once; rewards that follow soon go out together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from ltzd.chain.contracts import ltz
from ltzd.store.wakeups import REWARDS
from tests.support.chain.mint_world import POLICY, World
from tests.support.rows.core import value
from tests.support.waiting import until

LONG = 60.0
"""Longer than any test runs, in seconds."""


@asynccontextmanager
async def a_lane(world: World, linger: float, batch_linger: float) -> AsyncIterator[None]:
    world.node.mines_at_once = True
    policy = replace(POLICY, linger_seconds=linger, batch_linger_seconds=batch_linger)
    async with world.serving(policy):
        yield


async def batches(world: World) -> list[int]:
    """Rewards in each transaction, in the order of nonces."""
    async with world.eyes.acquire() as connection:
        rows = await connection.fetch(
            "SELECT count(*) FROM rewards JOIN transactions t ON t.id = transaction_id "
            "GROUP BY t.nonce ORDER BY t.nonce"
        )
    return [row["count"] for row in rows]


async def signed(world: World, *wanted: int) -> None:
    async def there() -> bool:
        return await batches(world) == list(wanted)

    await until(there)


async def test_an_idle_lane_signs_at_once(world: World) -> None:
    async with a_lane(world, LONG, LONG):
        await world.queue(1)
        await signed(world, 1)


async def test_rewards_that_trickle_in_behind_another_go_out_together(world: World) -> None:
    async with a_lane(world, 1.0, LONG):
        await world.queue(1)
        await signed(world, 1)
        for _ in range(10):
            await world.queue(1)
        assert await batches(world) == [1]
        await signed(world, 1, 10)


async def test_while_a_crowd_is_on_its_way_rewards_gather_for_longer(world: World) -> None:
    world.on_the_way = 4
    async with a_lane(world, 0.0, 1.0):
        await world.queue(1)
        await signed(world, 1)
        for _ in range(5):
            await world.queue(1)
        assert await batches(world) == [1]
        await signed(world, 1, 5)


async def test_when_the_crowd_has_come_nothing_waits_for_more(world: World) -> None:
    world.on_the_way = 4
    async with a_lane(world, 0.0, LONG):
        await world.queue(1)
        await signed(world, 1)
        await world.queue(3)
        await world.some_looks()
        assert await batches(world) == [1]

        world.on_the_way = 3
        await world.queue(1)
        await signed(world, 1, 4)


async def test_what_is_worth_a_transaction_gathers_no_longer(world: World) -> None:
    async with a_lane(world, LONG, LONG):
        await world.queue(1)
        await signed(world, 1)
        await world.queue(19)
        world.wakeups.notify(REWARDS)
        await world.some_looks()
        assert await batches(world) == [1]

        await world.queue(1)
        await signed(world, 1, 20)


async def test_behind_a_full_batch_nothing_gathers(world: World) -> None:
    async with a_lane(world, LONG, LONG):
        await world.queue(2 * ltz.MAX_BATCH + 7)
        await signed(world, ltz.MAX_BATCH, ltz.MAX_BATCH, 7)


async def test_gathering_holds_up_no_publication(world: World) -> None:
    """Bytes that a node has dropped go out again while rewards gather."""
    world.node.mines_at_once = False
    async with world.serving(replace(POLICY, linger_seconds=LONG, batch_linger_seconds=LONG)):
        await world.queue(1)
        await world.settled("published")
        await world.queue(1)
        world.node.pool.clear()

        async def back_in_the_pool() -> bool:
            return bool(world.node.pool)

        await until(back_in_the_pool)
    assert await batches(world) == [1]


async def test_a_crowd_that_takes_a_while_to_arrive_is_paid_in_a_few_transactions(
    world: World,
) -> None:
    policy = replace(POLICY, linger_seconds=0.01, batch_linger_seconds=0.2)
    world.on_the_way = 10
    world.node.mines_at_once = True
    async with world.serving(policy):
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(world.queue(5))
                await value(world.eyes, "SELECT pg_sleep(0.01)")
        await world.minted()
    used = await batches(world)
    assert sum(used) == 200
    assert len(used) < 20, used
