"""Checks the other ways to the database: that each leads to the same one, and what it can do."""

from ltzd.daemon.settings.settings import Settings
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.rules.checks.findings import Finding, fault, ok
from ltzd.store import database, start_facts
from ltzd.store.connection_errors import server_of
from ltzd.store.database import Connection
from ltzd.store.pooler import PoolerUrl
from ltzd.store.start_facts import ServerIdentity

_SECONDS = 5.0


async def examine(connection: Connection, settings: Settings) -> list[Finding]:
    """`connection` leads to `database_url`. Reads only."""
    pooled_url = settings.database.plain_pooled_url()
    if pooled_url is None:
        return []
    return [await _pooler(pooled_url, await start_facts.server_identity(connection))]


async def _pooler(url: PoolerUrl, direct: ServerIdentity) -> Finding:
    try:
        pooled = await _identity(url)
    except Misconfigured as error:
        sentence = error.message.replace("correct database_url", "correct [database] pooled_url")
        return fault("pooler", sentence)
    except DatabaseUnavailable as error:
        return fault(
            "pooler",
            f"{error.message.rstrip('.')}. Start the pooler, in transaction mode, or correct "
            "[database] pooled_url.",
        )
    if (pooled.name, pooled.system) != (direct.name, direct.system):
        return fault(
            "pooler",
            f"[database] pooled_url leads to the database {pooled.name} of the server "
            f"{pooled.system}, and database_url to {direct.name} of {direct.system}: correct one.",
        )
    if pooled.is_standby:
        return fault("pooler", "[database] pooled_url leads to a standby: give the primary.")
    return ok("pooler", f"The pooler leads to the same database: {server_of(url)}.")


async def _identity(url: PoolerUrl) -> ServerIdentity:
    """Asked in a database transaction, which a pooler in statement mode refuses."""
    pool = await database.open_pool(url, name="ltzd check", size=1, wait_seconds=_SECONDS)
    try:
        async with database.transaction(pool) as connection:
            return await start_facts.server_identity(connection)
    finally:
        pool.terminate()
