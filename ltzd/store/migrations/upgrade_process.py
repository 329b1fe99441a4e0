"""Upgrades the schema in a process of its own.

alembic and SQLAlchemy take 26 MiB that a process never gives back, and a daemon needs them only at
a start that finds an older schema.
"""

import asyncio
import sys
from contextlib import suppress
from typing import Final

from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.store.connection_errors import server_of

DATABASE_LOST: Final = 3
"""The exit code for a database that went away; an upgrade can be repeated."""
UPGRADE_REFUSED: Final = 4
"""The exit code for a statement that PostgreSQL refuses."""
TABLES_LOCKED: Final = 5
"""The exit code for a table that another session keeps locked; an upgrade can be repeated."""


class TablesLocked(Exception):
    """Another session has kept a table locked, so the upgrade has changed nothing."""


async def upgrade_in_child(url: str) -> None:
    """Return when the schema has this program's revision.

    If this process is cancelled or killed, the upgrade is undone or completed as a whole: it is one
    database transaction. Raises TablesLocked, DatabaseUnavailable, and Misconfigured for a refused
    statement.
    """
    # The URL may hold a password, which command lines and environments would show.
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # no modules from the working directory, which may hold another version's
        "-m",
        "ltzd.store.migrations.upgrades",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await child.communicate(f"{url}\n".encode())
    except BaseException:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        raise
    reason = output.decode(errors="replace").strip()
    match child.returncode:
        case 0:
            return
        case code if code == DATABASE_LOST:
            raise DatabaseUnavailable(f"The upgrade of {server_of(url)} was cut off: {reason}")
        case code if code == TABLES_LOCKED:
            raise TablesLocked
        case code if code == UPGRADE_REFUSED:
            raise Misconfigured(
                f"The upgrade of {server_of(url)} was refused and changed nothing: {reason}. "
                "Correct the cause, then start again."
            )
        case code:
            raise Misconfigured(
                f"The upgrade of {server_of(url)} ended with the code {code} and changed nothing; "
                "the lines above say why."
            )
