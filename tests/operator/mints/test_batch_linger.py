"""An idle lane signs at once; rewards that follow soon are minted together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

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
    """Returns the number of rewards in each transaction, in the order of nonces."""
    async with world.observer.acquire() as connection:
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


async def test_rewards_that_follow_another_closely_are_minted_together(world: World) -> None:
    async with a_lane(world, 1.0, LONG):
        await world.queue(1)
        await signed(world, 1)
        for _ in range(10):
            await world.queue(1)
        assert await batches(world) == [1]
        await signed(world, 1, 10)


async def test_while_many_events_are_being_recorded_batches_linger_longer(world: World) -> None:
    world.on_the_way = 4
    async with a_lane(world, 0.0, 1.0):
        await world.queue(1)
        await signed(world, 1)
        for _ in range(5):
            await world.queue(1)
        assert await batches(world) == [1]
        await signed(world, 1, 5)


async def test_once_all_events_are_recorded_the_batch_is_signed(world: World) -> None:
    world.on_the_way = 4
    async with a_lane(world, 0.0, LONG):
        await world.queue(1)
        await signed(world, 1)
        await world.queue(3)
        await world.some_polls()
        assert await batches(world) == [1]

        world.on_the_way = 3
        await world.queue(1)
        await signed(world, 1, 4)


async def test_a_batch_worth_a_transaction_lingers_no_longer(world: World) -> None:
    async with a_lane(world, LONG, LONG):
        await world.queue(1)
        await signed(world, 1)
        await world.queue(19)
        world.wakeups.notify(REWARDS)
        await world.some_polls()
        assert await batches(world) == [1]

        await world.queue(1)
        await signed(world, 1, 20)


async def test_rewards_behind_a_full_batch_do_not_linger(world: World) -> None:
    async with a_lane(world, LONG, LONG):
        await world.queue(2 * ltz.MAX_BATCH + 7)
        await signed(world, ltz.MAX_BATCH, ltz.MAX_BATCH, 7)


async def test_lingering_delays_no_publication(world: World) -> None:
    """Bytes that a node has dropped are published again while rewards linger."""
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


async def test_a_slow_stream_of_many_events_is_paid_in_few_transactions(
    world: World,
) -> None:
    policy = replace(POLICY, linger_seconds=0.01, batch_linger_seconds=0.2)
    world.on_the_way = 10
    world.node.mines_at_once = True
    async with world.serving(policy):
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(world.queue(5))
                await value(world.observer, "SELECT pg_sleep(0.01)")
        await world.minted()
    used = await batches(world)
    assert sum(used) == 200
    assert len(used) < 20, used
