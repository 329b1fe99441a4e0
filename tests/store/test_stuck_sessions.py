"""A session that waits for its frozen client is ended if it holds up another one, and only then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from ltzd.store import database, stuck_sessions
from ltzd.store.database import Connection, Pool
from ltzd.store.role_pools import open_fresh_pool
from tests.support.rows.core import value
from tests.support.waiting import until

ENDED = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""The errors of a statement on a session that the server is ending, or has ended."""


@asynccontextmanager
async def a_frozen_transaction(url: str, application: str) -> AsyncIterator[Connection]:
    """A session that has locked the table `leases` and then hears nothing from its client."""
    connection = await asyncpg.connect(url, server_settings={"application_name": application})
    try:
        await connection.execute("BEGIN; LOCK TABLE leases IN ACCESS EXCLUSIVE MODE")
        yield connection
    finally:
        connection.terminate()


@asynccontextmanager
async def a_waiting_session(pool: Pool) -> AsyncIterator["asyncio.Task[int]"]:
    waiting = asyncio.create_task(value(pool, "SELECT count(*) FROM leases"))
    yield waiting
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_frozen_session_that_holds_up_another_one_is_ended(
    database_url: str, pool: Pool
) -> None:
    connection = await database.connect(database_url, "leases")
    async with (
        a_frozen_transaction(database_url, "ltzd operator") as frozen,
        a_waiting_session(pool) as waiting,
    ):
        pid = frozen.get_server_pid()
        assert await stuck_sessions.end_stuck(connection) == [], "it may still go on"

        async def is_ended() -> bool:
            return await stuck_sessions.end_stuck(connection) == [pid]

        await until(is_ended)
        assert await waiting == 0
        with pytest.raises(ENDED):
            await frozen.execute("COMMIT")
    await connection.close()


async def test_a_frozen_process_that_fills_a_rebuild_is_ended_in_the_middle_of_a_copy(
    database_url: str, pool: Pool
) -> None:
    """No timeout of PostgreSQL ends it: during a COPY the session counts as active."""
    connection = await database.connect(database_url, "leases")
    fresh = await open_fresh_pool(database_url, "public")
    frozen = await fresh.take()
    await frozen.execute("BEGIN; LOCK TABLE leases IN ACCESS EXCLUSIVE MODE")
    await frozen.execute("CREATE TEMP TABLE copied (number int)")
    copying = asyncio.create_task(frozen.copy_to_table("copied", source=_nothing_yet()))
    try:
        async with a_waiting_session(pool) as waiting:
            pid = frozen.get_server_pid()

            async def is_ended() -> bool:
                return await stuck_sessions.end_stuck(connection) == [pid]

            await until(is_ended)
            assert await waiting == 0
    finally:
        fresh.terminate()
        copying.cancel()
        await asyncio.gather(copying, return_exceptions=True)
        await connection.close()


async def _nothing_yet() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


@pytest.mark.parametrize(
    ("application", "holds_up"), [("psql", True), ("ltzd operator", False)], ids=["people", "alone"]
)
async def test_sessions_of_people_and_those_that_hold_up_nobody_stay(
    database_url: str, pool: Pool, application: str, holds_up: bool
) -> None:
    connection = await database.connect(database_url, "leases")
    async with a_frozen_transaction(database_url, application) as frozen:
        async with a_waiting_session(pool) as waiting:
            if not holds_up:
                waiting.cancel()
            await value(pool, "SELECT pg_sleep(2.5)")
            assert await stuck_sessions.end_stuck(connection) == []
        await frozen.execute("COMMIT")
    await connection.close()
