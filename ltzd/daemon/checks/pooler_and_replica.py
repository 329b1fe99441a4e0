"""Checks the pooler and the standby: that each leads to the same database, and what it can do."""

import msgspec

from ltzd.daemon.settings.settings import Settings
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.rules.checks.findings import Finding, fault, ok, warning
from ltzd.store import database, start_facts
from ltzd.store.connection_errors import server_of
from ltzd.store.database import Connection
from ltzd.store.pooler import PoolerUrl
from ltzd.store.start_facts import ServerIdentity

_SECONDS = 5.0


async def examine(connection: Connection, settings: Settings) -> list[Finding]:
    """`connection` leads to `database_url`. Reads only."""
    pooled_url = settings.database.plain_pooled_url()
    replica_url = settings.database.plain_replica_url()
    if pooled_url is None and replica_url is None:
        return []
    direct = await start_facts.server_identity(connection)
    findings = []
    if pooled_url is not None:
        findings.append(await _pooler(pooled_url, direct))
    if replica_url is not None:
        findings.append(await _replica(replica_url, direct))
    return findings


async def _pooler(url: PoolerUrl, direct: ServerIdentity) -> Finding:
    route = _Route("pooler", "pooled_url")
    try:
        pooled = await _identity(url)
    except Misconfigured as error:
        return route.misconfigured(error)
    except DatabaseUnavailable as error:
        return fault(
            route.check,
            f"{error.message.rstrip('.')}. Start the pooler, in transaction mode, or correct "
            "[database] pooled_url.",
        )
    if not pooled.is_same_database(direct):
        return route.of_another_database(pooled, direct)
    if pooled.is_standby:
        return fault(route.check, "[database] pooled_url leads to a standby: give the primary.")
    return ok(route.check, f"The pooler leads to the same database: {server_of(url)}.")


async def _replica(url: str, direct: ServerIdentity) -> Finding:
    """A standby that is away, or was promoted, stops nothing: the primary answers in its place."""
    route = _Route("replica", "replica_url")
    try:
        replica = await _identity(url)
    except Misconfigured as error:
        return route.misconfigured(error)
    except DatabaseUnavailable as error:
        return warning(
            route.check,
            f"{error.message.rstrip('.')}. Until the standby of [database] replica_url answers, "
            "the primary is asked in its place.",
        )
    if not replica.is_same_database(direct):
        return route.of_another_database(replica, direct)
    if replica.was_promoted:
        return warning(
            route.check,
            "The standby of [database] replica_url was promoted: until you give a standby of the "
            "new primary, the primary is asked in its place.",
        )
    if not replica.is_standby:
        return fault(
            route.check,
            "[database] replica_url leads to a primary: give a standby, or leave it out.",
        )
    return ok(route.check, f"The standby follows the same database: {server_of(url)}.")


class _Route(msgspec.Struct, frozen=True):
    """The name of a check, and the setting of [database] that it is about."""

    check: str
    setting: str

    def misconfigured(self, error: Misconfigured) -> Finding:
        return fault(
            self.check,
            error.message.replace("correct database_url", f"correct [database] {self.setting}"),
        )

    def of_another_database(self, identity: ServerIdentity, direct: ServerIdentity) -> Finding:
        return fault(
            self.check,
            f"[database] {self.setting} leads to the database {identity.name} of the server "
            f"{identity.system}, and database_url to {direct.name} of {direct.system}: correct "
            "one.",
        )


async def _identity(url: str) -> ServerIdentity:
    """Asked in a database transaction, which a pooler in statement mode refuses."""
    pool = await database.open_pool(url, name="ltzd check", size=1, wait_seconds=_SECONDS)
    try:
        async with database.transaction(pool) as connection:
            return await start_facts.server_identity(connection)
    finally:
        pool.terminate()
