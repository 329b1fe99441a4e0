"""A ring is heard by whoever waits or waits next, in this process and, by NOTIFY, in the others."""

import asyncio

from ltzd.store import wakeups as signals
from ltzd.store.database import Pool, session, transaction
from ltzd.store.wakeups import BLOCKS, REWARDS, Signals, Wakeup
from tests.support.rows.core import running, value
from tests.support.waiting import until

LONG = 30.0


async def heard(bell: Wakeup) -> float:
    """Seconds until the bell rings."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await bell.wait(LONG)
    return loop.time() - began


async def test_a_ring_while_nobody_waits_is_heard_by_the_next_wait() -> None:
    bells = Signals("postgresql://nowhere")
    bell = bells.bell(REWARDS)
    bells.ring(REWARDS)
    bells.ring(REWARDS)

    assert await heard(bell) < 1
    began = asyncio.get_running_loop().time()
    await bell.wait(0.05)
    assert asyncio.get_running_loop().time() - began >= 0.04, "two rings are one"


async def test_every_waiter_of_a_channel_hears_and_nobody_else() -> None:
    bells = Signals("postgresql://nowhere")
    first, second, other = bells.bell(REWARDS), bells.bell(REWARDS), bells.bell(BLOCKS)
    bells.ring(REWARDS)

    await asyncio.gather(heard(first), heard(second))
    async with asyncio.timeout(1):
        waiting = asyncio.create_task(heard(other))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        waiting.cancel()


async def listening(pool: Pool, sessions: int) -> None:
    async def all_there() -> bool:
        found: int = await value(
            pool,
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ltzd signals' "
            "AND datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'",
        )
        return found == sessions

    await until(all_there)


async def notify_as(pool: Pool, origin: str) -> None:
    """A commit of the process with that origin."""
    await value(pool, "SELECT pg_notify($1, $2)", BLOCKS, origin)


async def test_the_commit_of_another_process_is_heard_and_its_rollback_is_not(
    database_url: str, pool: Pool
) -> None:
    here, there = Signals(database_url), Signals(database_url)
    bells = [here.bell(BLOCKS), there.bell(BLOCKS)]
    async with running(here.listen(), there.listen()):
        await listening(pool, 2)
        for bell in bells:
            await heard(bell)  # it rings once when listening begins

        await roll_back_a_notification(pool)
        async with transaction(pool) as connection:
            await signals.notify(connection, BLOCKS)
        waits = [asyncio.create_task(heard(bell)) for bell in bells]
        await asyncio.wait(waits, timeout=0.1)
        assert not any(wait.done() for wait in waits), "a process rings its own bells itself"

        await notify_as(pool, "another process")
        assert max(await asyncio.gather(*waits)) < 5


async def roll_back_a_notification(pool: Pool) -> None:
    async with session(pool) as connection:
        changed_mind = connection.transaction()
        await changed_mind.start()
        await connection.execute("SELECT pg_notify($1, 'another process')", BLOCKS)
        await changed_mind.rollback()


async def test_a_lost_connection_is_opened_again_and_rings_for_what_was_missed(
    database_url: str, pool: Pool
) -> None:
    bells = Signals(database_url)
    bell = bells.bell(REWARDS)
    async with running(bells.listen()):
        await listening(pool, 1)
        await heard(bell)
        await value(
            pool,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name = 'ltzd signals' AND datname = current_database()",
        )
        assert await heard(bell) < 5
        await listening(pool, 1)


async def test_listening_goes_on_trying_while_the_database_is_away() -> None:
    bells = Signals("postgresql://nobody@127.0.0.1:1/nothing")
    async with running(bells.listen()) as (task,):
        await asyncio.wait([task], timeout=0.2)
        assert not task.done()
