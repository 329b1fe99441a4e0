"""Waiting for a mint's hash, from this process's lane or from the database."""

import asyncio
from uuid import uuid4

from ltzd.actions.event_handler.hash_waiter import MintHashWaiters
from ltzd.store.database import Pool, session
from ltzd.store.operator import transactions
from ltzd.store.wakeups import PUBLISHED, WakeupHub
from tests.support.rows.core import (
    a_hash,
    a_lane,
    an_attempt,
    an_intent,
    queue_rewards,
    running,
    value,
)

LONG = 20.0


async def test_a_hash_that_does_not_come_is_none(pool: Pool) -> None:
    hashes = MintHashWaiters(pool, WakeupHub(""))
    async with running(hashes.run()):
        assert await hashes.wait(uuid4(), 0.05) is None


async def test_a_hash_delivered_by_this_processs_lane_is_returned_at_once(pool: Pool) -> None:
    hashes = MintHashWaiters(pool, WakeupHub(""))
    rewards = [uuid4() for _ in range(3)]
    waits = [asyncio.create_task(hashes.wait(reward, LONG)) for reward in rewards]
    await asyncio.sleep(0)

    hashes.deliver([*rewards[:2], uuid4()], a_hash("mint"))
    hashes.deliver(rewards[:2], a_hash("later"))

    assert await asyncio.gather(*waits[:2]) == [a_hash("mint")] * 2
    assert not waits[2].done()
    waits[2].cancel()


async def test_another_processs_publication_is_found_in_the_rows(pool: Pool) -> None:
    wakeups = WakeupHub("")
    hashes = MintHashWaiters(pool, wakeups)
    ids = await queue_rewards(pool, 3)
    lane = await a_lane(pool)
    async with running(hashes.run()):
        waits = [asyncio.create_task(hashes.wait(reward, LONG)) for reward in ids]
        async with session(pool) as connection:
            await transactions.store_signed(
                connection, lane, an_intent(0, ids[:2]), an_attempt("mint")
            )
        wakeups.notify(PUBLISHED)
        await asyncio.wait(waits, timeout=0.1)
        assert not any(wait.done() for wait in waits), "a signed mint is not published"

        await value(pool, "UPDATE attempts SET published_at = now() RETURNING 1")
        wakeups.notify(PUBLISHED)
        assert await asyncio.gather(*waits[:2]) == [a_hash("mint")] * 2
        assert not waits[2].done()
        waits[2].cancel()


async def test_a_cancelled_waiter_is_removed(pool: Pool) -> None:
    hashes = MintHashWaiters(pool, WakeupHub(""))
    reward = uuid4()
    wait = asyncio.create_task(hashes.wait(reward, LONG))
    await asyncio.sleep(0)
    wait.cancel()
    await asyncio.wait([wait])
    hashes.deliver([reward], a_hash("mint"))
    assert await hashes.wait(reward, 0.01) is None
