"""The session is named whose locks hold up ltzd's statements."""

import asyncio
from contextlib import suppress

import asyncpg

from ltzd.store.doctor_facts import blocking_sessions
from tests.support.waiting import until


async def test_the_first_session_of_a_queue_for_a_lock_is_named(database_url: str) -> None:
    """A backup that waits behind an administrator's statement holds up others only for it."""
    async with asyncio.TaskGroup() as group:
        holder = await a_session(database_url, "VACUUM by hand")
        between = await a_session(database_url, "backup")
        held_up = await a_session(database_url, "ltzd http")
        mine = await a_session(database_url, "ltzd doctor")
        await holder.execute("BEGIN; LOCK TABLE rewards IN ACCESS SHARE MODE")
        waiting = [
            group.create_task(ended(between, "BEGIN; LOCK TABLE rewards IN ACCESS EXCLUSIVE MODE")),
        ]

        async def queued(count: int) -> bool:
            locks = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::regclass"
            return bool(await mine.fetchval(locks, "rewards") == count)

        await until(lambda: queued(1))
        waiting.append(group.create_task(ended(held_up, "SELECT count(*) FROM rewards")))
        await until(lambda: queued(2))

        assert await blocking_sessions(mine) == [], "no statement has waited for long"
        (session,) = await blocking_sessions(mine, 0.0)
        assert (session.pid, session.held_up) == (holder.get_server_pid(), 1)
        assert (session.application, session.state) == ("VACUUM by hand", "idle in transaction")
        assert session.text == "BEGIN; LOCK TABLE rewards IN ACCESS SHARE MODE"
        assert session.seconds is not None

        for each in (holder, between, held_up):
            each.terminate()
        await asyncio.gather(*waiting)
        await mine.close()


async def a_session(url: str, application: str) -> asyncpg.Connection:
    return await asyncpg.connect(url, server_settings={"application_name": application})


async def ended(connection: asyncpg.Connection, statement: str) -> None:
    with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        await connection.execute(statement)
