"""PostgreSQL drops ltzd's sessions, crashes and recovers under load; ltzd continues."""

import asyncio
import os
import signal

import psutil

from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.instance import Instance
from tests.support.instances.load import Load, a_load
from tests.support.waiting import until

CLIENTS = 16
EVENTS_BETWEEN = 40


async def test_terminated_database_sessions_lose_no_event(instance: Instance) -> None:
    process = instance.process
    async with a_load(instance, CLIENTS) as load:
        for _ in range(4):
            await more_events(load)
            ended = await instance.ask(
                """
                SELECT count(pg_terminate_backend(pid))
                  FROM pg_stat_activity
                 WHERE application_name LIKE 'ltzd%'
                """
            )
            assert ended >= 4, "pool, locks and listener"
        await more_events(load)
    await assert_service_continues(instance, load)
    assert instance.process is process


async def test_a_database_crash_loses_no_event(one_instance: Instance) -> None:
    """Kills a backend, which makes PostgreSQL restart all of its processes."""
    async with a_load(one_instance, CLIENTS) as load:
        await more_events(load)
        server = psutil.Process(one_instance.service_pids()["postgres"])
        backend = await one_instance.ask(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'ltzd operator' LIMIT 1"
        )
        os.kill(backend, signal.SIGKILL)
        await more_events(load)
    await assert_service_continues(one_instance, load)
    assert server.is_running()


async def more_events(load: Load) -> None:
    """Waits until more events have been accepted."""
    goal = len(load.accepted) + EVENTS_BETWEEN

    async def reached() -> bool:
        return len(load.accepted) >= goal

    await until(reached, 60.0)


async def assert_service_continues(instance: Instance, load: Load) -> None:
    assert load.statuses() <= {200, 202, 500, 503}
    await all_minted(instance)
    await assert_books_agree(instance, load.accepted)
    async with asyncio.TaskGroup() as group:
        for answer in load.accepted[-5:]:
            group.create_task(instance.minted(answer.event_id))
