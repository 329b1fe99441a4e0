"""Whether what PostgreSQL has confirmed survives a crash of the server.

ltzd answers a caller, and publishes a transaction, once the row is committed. A server that loses
confirmed commits would make it mint twice or not at all. Each session is checked, because ALTER
ROLE and ALTER DATABASE change `synchronous_commit` for new sessions, and because a promoted replica
has settings of its own.
"""

import msgspec

from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.store import database
from ltzd.store.database import Connection


class DurabilitySettings(msgspec.Struct, frozen=True):
    """The session's settings. `has_standbys`: the server waits for synchronous standbys."""

    fsync: str
    full_page_writes: str
    synchronous_commit: str
    has_standbys: bool


def fault(settings: DurabilitySettings) -> str | None:
    """The setting that a person must change, in words, or None if confirmed commits survive."""
    if settings.fsync != "on":
        return (
            "PostgreSQL runs with fsync = off: a power failure loses commits that it has "
            "confirmed, and may destroy the database. Set fsync = on."
        )
    if settings.full_page_writes != "on":
        return (
            "PostgreSQL runs with full_page_writes = off: a power failure may destroy the "
            "database. Set full_page_writes = on."
        )
    if settings.synchronous_commit == "off":
        return (
            "ltzd's sessions have synchronous_commit = off: a crash of PostgreSQL loses commits "
            "that it has confirmed, so that rewards would be minted twice or not at all. Set "
            "synchronous_commit = on, and look for ALTER ROLE … SET and ALTER DATABASE … SET "
            "(\\drds in psql)."
        )
    if settings.synchronous_commit == "local" and settings.has_standbys:
        return (
            "ltzd's sessions have synchronous_commit = local, although PostgreSQL has synchronous "
            "standbys: a failover loses commits that it has confirmed. Set synchronous_commit = "
            "on, and look for ALTER ROLE … SET and ALTER DATABASE … SET (\\drds in psql)."
        )
    return None


async def read(connection: Connection) -> DurabilitySettings:
    row = await connection.fetchrow(
        """
        SELECT current_setting('fsync') AS fsync,
               current_setting('full_page_writes') AS full_page_writes,
               current_setting('synchronous_commit') AS synchronous_commit,
               current_setting('synchronous_standby_names') <> '' AS has_standbys
        """
    )
    return DurabilitySettings(**row)


async def require(connection: Connection) -> None:
    """Raises DatabaseUnavailable, with what to do, for a session whose commits may be lost."""
    reason = fault(await read(connection))
    if reason is not None:
        raise DatabaseUnavailable(reason)


async def require_at_start(url: str) -> None:
    """Raises Misconfigured if a new session's commits may be lost, and as `database.connect`."""
    connection = await database.connect(url, "durability")
    try:
        reason = fault(await read(connection))
    finally:
        await connection.close()
    if reason is not None:
        raise Misconfigured(reason)
