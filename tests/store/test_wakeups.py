"""A wake-up reaches the current or the next wait, in this process and, by NOTIFY, in the others."""

import asyncio
import subprocess
import sys

import pytest

from ltzd.errors import DatabaseUnavailable
from ltzd.store import database, wakeups
from ltzd.store.database import Pool, session, transaction
from ltzd.store.wakeups import BLOCKS, CHANNELS, REWARDS, Wakeup, WakeupHub, notify, origin
from tests.support.rows.core import running, value
from tests.support.rows.notifications import notifications, until_count
from tests.support.services.silent_proxy import a_silent_proxy
from tests.support.waiting import until

LONG = 30.0


async def seconds_until_woken(wakeup: Wakeup) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await wakeup.wait(LONG)
    return loop.time() - began


async def test_a_notification_without_a_waiter_wakes_the_next_wait() -> None:
    hub = WakeupHub("postgresql://nowhere")
    wakeup = hub.subscribe(REWARDS)
    hub.notify(REWARDS)
    hub.notify(REWARDS)

    assert await seconds_until_woken(wakeup) < 1
    began = asyncio.get_running_loop().time()
    await wakeup.wait(0.05)
    assert asyncio.get_running_loop().time() - began >= 0.04, "two notifications wake once"


async def test_every_waiter_of_a_channel_is_woken_and_no_other() -> None:
    hub = WakeupHub("postgresql://nowhere")
    first, second, other = (
        hub.subscribe(REWARDS),
        hub.subscribe(REWARDS),
        hub.subscribe(BLOCKS),
    )
    hub.notify(REWARDS)

    await asyncio.gather(seconds_until_woken(first), seconds_until_woken(second))
    async with asyncio.timeout(1):
        waiting = asyncio.create_task(seconds_until_woken(other))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        waiting.cancel()


async def listening(pool: Pool, sessions: int) -> None:
    async def all_there() -> bool:
        count: int = await value(
            pool,
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ltzd wakeups' "
            "AND datname = current_database() AND query ~ '^LISTEN|pg_notify' AND state = 'idle'",
        )
        return count == sessions

    await until(all_there)


async def notify_as(pool: Pool, origin: str) -> None:
    """Notifies as the process with this origin does when it commits."""
    await value(pool, "SELECT pg_notify($1, $2)", BLOCKS, origin)


async def test_a_commit_of_another_process_wakes_and_its_rollback_does_not(
    database_url: str, pool: Pool
) -> None:
    here, there = WakeupHub(database_url), WakeupHub(database_url)
    wakeups = [here.subscribe(BLOCKS), there.subscribe(BLOCKS)]
    async with running(here.listen(), there.listen()):
        await listening(pool, 2)
        for wakeup in wakeups:
            await seconds_until_woken(wakeup)  # Each waiter is woken once when listening begins.

        await roll_back_a_notification(pool)
        async with transaction(pool) as connection:
            await notify(connection, BLOCKS)
        waits = [asyncio.create_task(seconds_until_woken(wakeup)) for wakeup in wakeups]
        await asyncio.wait(waits, timeout=0.1)
        assert not any(wait.done() for wait in waits), "a process ignores its own notifications"

        await notify_as(pool, "another process")
        assert max(await asyncio.gather(*waits)) < 5


async def roll_back_a_notification(pool: Pool) -> None:
    async with session(pool) as connection:
        changed_mind = connection.transaction()
        await changed_mind.start()
        await connection.execute("SELECT pg_notify($1, 'another process')", BLOCKS)
        await changed_mind.rollback()


async def test_an_announcement_reaches_the_other_processes_once_for_many_commits(
    database_url: str, pool: Pool
) -> None:
    hub = WakeupHub(database_url)
    here = hub.subscribe(REWARDS)
    async with notifications(database_url, REWARDS) as payloads, running(hub.listen()):
        await listening(pool, 1)
        await seconds_until_woken(here)
        for _ in range(100):
            hub.announce(REWARDS)
            assert await seconds_until_woken(here) < 1
        await until_count(payloads, 1)
    assert set(payloads) == {origin()}
    assert len(payloads) < 100


async def test_an_announcement_after_one_that_is_being_sent_is_sent_too(
    database_url: str, pool: Pool
) -> None:
    """The commit that is announced second may be one that the woken processes could not see."""
    async with a_silent_proxy(database_url) as (network, through):
        hub = WakeupHub(through, check_seconds=20.0)
        async with notifications(database_url, REWARDS) as payloads, running(hub.listen()):
            await listening(pool, 1)
            hub.announce(REWARDS)
            await until_count(payloads, 1)
            await asyncio.sleep(0.1)  # the answer to the first announcement is in
            network.hold_answers()
            hub.announce(REWARDS)
            await until_count(payloads, 2)
            hub.announce(REWARDS)
            network.heal()
            await until_count(payloads, 3)


async def test_what_is_announced_without_a_connection_is_sent_over_the_next_one(
    database_url: str,
) -> None:
    hub = WakeupHub(database_url)
    hub.announce(REWARDS)
    async with notifications(database_url, REWARDS) as payloads, running(hub.listen()):
        await until_count(payloads, 1)
    assert payloads == [origin()]


async def test_a_lost_connection_is_reopened_and_wakes_every_waiter(
    database_url: str, pool: Pool
) -> None:
    hub = WakeupHub(database_url)
    wakeup = hub.subscribe(REWARDS)
    async with running(hub.listen()):
        await listening(pool, 1)
        await seconds_until_woken(wakeup)
        await value(
            pool,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name = 'ltzd wakeups' AND datname = current_database()",
        )
        assert await seconds_until_woken(wakeup) < 5
        await listening(pool, 1)


async def test_listening_retries_while_the_database_is_unavailable() -> None:
    hub = WakeupHub("postgresql://nobody@127.0.0.1:1/nothing")
    async with running(hub.listen()) as (task,):
        await asyncio.wait([task], timeout=0.2)
        assert not task.done()


class BrokenAfterOneAnswer:
    """A connection of a server or pooler that ends each session soon after it began."""

    def __init__(self) -> None:
        self.has_answered = False

    def add_termination_listener(self, _listener: object) -> None: ...

    async def add_listener(self, _channel: str, _listener: object) -> None: ...

    def is_closed(self) -> bool:
        return False

    async def execute(self, *_arguments: object) -> None:
        if self.has_answered:
            raise DatabaseUnavailable("The connection is lost")
        self.has_answered = True

    def terminate(self) -> None: ...


async def test_the_pause_before_a_new_connection_grows_only_while_none_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty doubled pauses would last for a quarter of an hour."""
    connections: list[BrokenAfterOneAnswer] = []

    async def connect(*_arguments: object, **_options: object) -> BrokenAfterOneAnswer:
        connections.append(BrokenAfterOneAnswer())
        return connections[-1]

    async def has_lived_through_twenty() -> bool:
        return len(connections) > 20

    monkeypatch.setattr(database, "connect", connect)
    monkeypatch.setattr(wakeups, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(wakeups, "_LONGEST_PAUSE_SECONDS", 3_600.0)
    hub = WakeupHub("postgresql://nowhere", check_seconds=0.001)
    async with running(hub.listen()):
        await until(has_lived_through_twenty)


async def test_a_connection_that_answers_its_checks_stays(database_url: str, pool: Pool) -> None:
    hub = WakeupHub(database_url, check_seconds=0.05)
    wakeup = hub.subscribe(BLOCKS)
    async with running(hub.listen()):
        await listening(pool, 1)
        await seconds_until_woken(wakeup)
        session_id = await value(pool, "SELECT pid FROM pg_stat_activity WHERE " + _LISTENS)
        await value(pool, "SELECT pg_sleep(0.5)")
        assert await value(pool, "SELECT pid FROM pg_stat_activity WHERE " + _LISTENS) == session_id
        await notify_as(pool, "another process")
        assert await seconds_until_woken(wakeup) < 5


async def test_a_network_that_swallows_packets_is_noticed_and_another_connection_opened(
    database_url: str, pool: Pool
) -> None:
    async with a_silent_proxy(database_url) as (network, through):
        hub = WakeupHub(through, check_seconds=0.2)
        wakeup = hub.subscribe(BLOCKS)
        async with running(hub.listen()):
            await listening(pool, 1)
            await seconds_until_woken(wakeup)
            network.swallow_present()
            assert await seconds_until_woken(wakeup) < LONG / 2, "woken by the new connection"
            await notify_as(pool, "another process")
            assert await seconds_until_woken(wakeup) < 5


async def test_a_network_that_swallows_packets_while_listening_begins_is_noticed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "_CONNECT_SECONDS", 1.0)
    async with a_silent_proxy(database_url) as (network, through):
        hub = WakeupHub(through)
        wakeup = hub.subscribe(CHANNELS[-1])
        network.swallow_once_asked(b"LISTEN")
        async with running(hub.listen()):
            assert await seconds_until_woken(wakeup) < LONG / 2, "woken by the second connection"


_LISTENS = "application_name = 'ltzd wakeups' AND datname = current_database()"


def test_processes_that_are_forked_after_the_import_hear_each_other() -> None:
    program = (
        "import os; from ltzd.store.wakeups import origin; mine = origin(); child = os.fork();"
        " os.write(1, f'{origin() == mine}\\n'.encode()); child and os.wait()"
    )
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=True, timeout=60
    )
    assert sorted(done.stdout.split()) == ["False", "True"]
