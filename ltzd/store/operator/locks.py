"""The election of a lane's or a chain's holder: one advisory lock each, on its own connection.

PostgreSQL elects: a session that ends releases its lock. Here a lost connection ends the holder's
term at once (`lost`), and the fencing epoch in the row (`lanes.epoch`, `chains.epoch`) refuses
every write of a holder that has not noticed.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.store import database
from ltzd.store.database import Connection


class LockTerm:
    """The time during which this process holds a lock."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()


def _key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


@asynccontextmanager
async def hold_lock(url: str, name: str, retry_seconds: float = 0.5) -> AsyncIterator[LockTerm]:
    """Wait for the lock called `name`, and hold it to the end of the block.

    A lock that another session holds is tried again after `retry_seconds`.
    Raises DatabaseUnavailable if the database cannot be reached, or is lost during the wait.
    """
    try:
        connection = await database.connect(url, f"lock {name}"[:60])
    except Misconfigured as error:  # the same URL worked at the start
        raise DatabaseUnavailable(error.message) from error
    try:
        await _take(connection, _key(name), retry_seconds)
        term = LockTerm()
        connection.add_termination_listener(lambda _connection: term.lost.set())
        yield term
    finally:
        await _close(connection)


async def _take(connection: Connection, key: int, retry_seconds: float) -> None:
    try:
        # PostgreSQL sends no event when another session ends.
        while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", key):  # noqa: ASYNC110
            await asyncio.sleep(retry_seconds)
    except database.LOST as error:
        raise DatabaseUnavailable(f"The database was lost: {type(error).__name__}") from error


async def _close(connection: Connection) -> None:
    """End the session, so that the server releases the lock now and not when it notices."""
    try:
        await connection.close(timeout=1.0)
    except database.LOST:
        connection.terminate()
