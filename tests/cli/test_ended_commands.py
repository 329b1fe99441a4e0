"""A command that is ended leaves no statement of its own running in PostgreSQL."""

import asyncio
import signal
from pathlib import Path

import pytest

from ltzd.store import database
from ltzd.store.database import Connection
from tests.support.commands import begin_ltzd
from tests.support.waiting import until

COMMANDS = {"books": ("rewards", 2), "event list": ("events", 1)}
"""By command: the table that its statement waits for here, and the number of its sessions."""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("command", COMMANDS)
async def test_the_statements_of_an_ended_command_end_with_it(
    data_dir: Path, database_url: str, db: Connection, command: str, ending: signal.Signals
) -> None:
    table, sessions = COMMANDS[command]
    holder = await database.connect(database_url, "holder")
    async with holder.transaction():
        await holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        process = await begin_ltzd(*command.split(), "--data-dir", data_dir)

        async def waiting() -> int:
            """The sessions of the command that wait for the lock."""
            count: int = await db.fetchval(
                """
                SELECT count(*) FROM pg_stat_activity
                 WHERE application_name = $1 AND wait_event_type = 'Lock'
                """,
                f"ltzd {command}",
            )
            return count

        async def all_wait() -> bool:
            return await waiting() == sessions

        async def none_waits() -> bool:
            return await waiting() == 0

        await until(all_wait)
        process.send_signal(ending)
        await asyncio.wait_for(process.communicate(), timeout=60)
        await until(none_waits, seconds=20)
    await holder.close()
