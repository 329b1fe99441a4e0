"""The revision of a database's schema, and its upgrade to this program's."""

import asyncio

import asyncpg
import msgspec

from ltzd.concurrency.outages import Outage
from ltzd.errors import Misconfigured
from ltzd.store.connection_errors import lacks_privilege
from ltzd.store.database import connect
from ltzd.store.migrations import known_revisions
from ltzd.store.migrations.upgrade_process import TablesLocked, upgrade_in_child
from ltzd.store.start_facts import hidden_tables

_LOCKED_SECONDS = 1.0
"""The pause after an upgrade that met a locked table, before it is tried again."""


async def migrate(url: str, *, in_child: bool = False) -> None:
    """Upgrade the schema to this program's revision; a newer schema is refused.

    `in_child` leaves alembic's memory to a process of its own, and takes a second longer. Safe to
    run from several processes at once. Connections opened before it must be closed: asyncpg
    caches statements of the old schema. While another session keeps a table locked, such as that
    of a dump, the upgrade is repeated, so that nobody waits behind its locks.
    Raises Misconfigured, DatabaseUnavailable.
    """
    schema = await read_schema(url)
    if not schema.pending:
        return
    outage = Outage("migration.tables_locked", "migration.continues")
    while True:
        try:
            await _upgrade(url, in_child=in_child)
        except TablesLocked:
            outage.failed(await _oldest_lock(url))
            await asyncio.sleep(_LOCKED_SECONDS)
        else:
            outage.over()
            return


async def _upgrade(url: str, *, in_child: bool) -> None:
    if in_child:
        await upgrade_in_child(url)
        return
    # alembic and SQLAlchemy take half a second to import, and most starts find a current schema.
    from ltzd.store.migrations import upgrades  # noqa: PLC0415

    await asyncio.to_thread(upgrades.upgrade, url)


async def _oldest_lock(url: str) -> str:
    """The session that has kept a table locked for the longest time, for people.

    Raises Misconfigured, DatabaseUnavailable.
    """
    connection = await connect(url, "migrate")
    try:
        session = await connection.fetchrow(
            """
            SELECT pid, coalesce(nullif(application_name, ''), backend_type, usename, '') AS name
              FROM pg_stat_activity
             WHERE pid IN (SELECT pid
                             FROM pg_locks
                             JOIN pg_class ON pg_class.oid = relation
                            WHERE database = (SELECT oid FROM pg_database
                                               WHERE datname = current_database())
                              AND relnamespace <> 'pg_catalog'::regnamespace)
               AND pid <> pg_backend_pid()
             ORDER BY xact_start
             LIMIT 1
            """
        )
    finally:
        connection.terminate()
    if session is None:
        return "a session kept a table locked"
    return f"session {session['pid']} ({session['name']}) keeps a table locked"


class Schema(msgspec.Struct, frozen=True):
    """The revision of a database's schema, None without one, and the revisions that it lacks."""

    revision: str | None
    pending: tuple[str, ...]


async def read_schema(url: str) -> Schema:
    """Raises Misconfigured for a schema of a newer version, and DatabaseUnavailable."""
    known = known_revisions()
    current = await _schema_revision(url)
    if current is None:
        return Schema(None, tuple(known))
    if current not in known:
        raise Misconfigured(
            f"The database has schema revision {current}, which this ltzd does not know; "
            "run the newer ltzd that made it, or use another database."
        )
    return Schema(current, tuple(known[known.index(current) + 1 :]))


async def _schema_revision(url: str) -> str | None:
    """The revision that alembic has recorded; returns None for a database without a schema.

    Raises Misconfigured, DatabaseUnavailable.
    """
    connection = await connect(url, "migrate")
    try:
        if await connection.fetchval("SELECT to_regclass('alembic_version')") is None:
            hidden = await hidden_tables(connection)
            if hidden is not None:
                raise Misconfigured(hidden)
            return None
        revision: str | None = await connection.fetchval("SELECT version_num FROM alembic_version")
    except asyncpg.InsufficientPrivilegeError as error:
        raise Misconfigured(lacks_privilege(error, url)) from error
    finally:
        await connection.close()
    return revision
