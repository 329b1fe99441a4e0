"""A lock has one holder; if its connection dies, the next waiter gets the lock."""

import asyncio

import pytest

from ltzd.errors import DatabaseUnavailable
from ltzd.store.database import Pool
from ltzd.store.operator import locks
from tests.support.rows.core import value
from tests.support.waiting import until


async def kill(pool: Pool, application: str) -> int:
    """Terminates the sessions with this application name on the server and returns their number."""
    killed: int = await value(
        pool,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE application_name = $1 AND datname = current_database()",
        application,
    )
    return killed


async def sessions(pool: Pool, application: str) -> int:
    count: int = await value(
        pool,
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name = $1 AND datname = current_database()",
        application,
    )
    return count


async def test_a_lock_has_one_holder(database_url: str) -> None:
    async with locks.hold_lock(database_url, "lane a"), locks.hold_lock(database_url, "lane b"):
        waiting = asyncio.create_task(_hold_once(database_url, "lane a"))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
    await waiting


async def _hold_once(url: str, name: str) -> None:
    async with locks.hold_lock(url, name, retry_seconds=0.01) as term:
        assert not term.lost.is_set()


async def test_a_lock_is_handed_over_when_its_holders_connection_dies(
    database_url: str, pool: Pool
) -> None:
    async with locks.hold_lock(database_url, "lane") as term:
        assert await kill(pool, "ltzd lock lane") == 1
        async with asyncio.timeout(5):
            await term.lost.wait()
            await _hold_once(database_url, "lane")


async def test_an_exception_in_the_block_releases_the_lock(database_url: str) -> None:
    with pytest.raises(RuntimeError):
        async with locks.hold_lock(database_url, "lane"):
            raise RuntimeError
    async with asyncio.timeout(5):
        await _hold_once(database_url, "lane")


async def test_a_cancelled_holder_releases_the_lock(database_url: str) -> None:
    holding = asyncio.Event()

    async def hold() -> None:
        async with locks.hold_lock(database_url, "lane"):
            holding.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await holding.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5):
        await _hold_once(database_url, "lane")


async def test_losing_the_database_while_waiting_is_unavailable(
    database_url: str, pool: Pool
) -> None:
    async with locks.hold_lock(database_url, "lane") as term:
        waiting = asyncio.create_task(_hold_once(database_url, "lane"))

        async def two_sessions() -> bool:
            return await sessions(pool, "ltzd lock lane") == 2

        await until(two_sessions)
        await kill(pool, "ltzd lock lane")
        await asyncio.wait([waiting], timeout=5)
        assert isinstance(waiting.exception(), DatabaseUnavailable)
        async with asyncio.timeout(5):
            await term.lost.wait()


async def test_no_database_is_unavailable() -> None:
    with pytest.raises(DatabaseUnavailable):
        await _hold_once("postgresql://nobody@127.0.0.1:1/nothing", "lane")
