"""Connections through a pooler in transaction mode, such as PgBouncer.

The pooler may give each database transaction to another session of the server. So nothing is set
for longer than a transaction, and no statement is kept prepared: asyncpg then sends a statement's
text again with its arguments, in one message. Each statement is planned anew, which is why the
settings for plans that are kept (`database.py`) are not needed here.
"""

from typing import Final

import asyncpg
import structlog

log = structlog.get_logger()

IDLE_TIMEOUT: Final = {"idle_in_transaction_session_timeout": "3s"}
"""A process that is frozen in the middle of a database transaction loses it, and its locks, as
soon as its leases. Direct sessions have it as a setting, pooled ones transaction by transaction."""

_TRANSACTION_SETTINGS: Final = "".join(
    f" SET LOCAL {name} = '{setting}';" for name, setting in IDLE_TIMEOUT.items()
)


async def switch_off_jit(connection: asyncpg.Connection) -> None:
    """Let no later session of this user in this database compile statements.

    PostgreSQL compiles a statement whose estimated cost is high, such as each insert of events once
    their tables are large, and takes seconds for it. Direct sessions switch that off for
    themselves (`database.py`). A session behind the pooler has the user's setting; those that are
    open keep the former one until the pooler closes them.
    """
    alter = await connection.fetchval(
        """
        SELECT format('ALTER ROLE %I IN DATABASE %I SET jit = off', session_user,
                      current_database())
         WHERE NOT EXISTS (
               SELECT FROM pg_db_role_setting s
                 JOIN pg_roles r ON r.oid = s.setrole
                 JOIN pg_database d ON d.oid = s.setdatabase
                WHERE r.rolname = session_user AND d.datname = current_database()
                  AND 'jit=off' = ANY(s.setconfig))
        """
    )
    if alter is None:
        return
    try:
        await connection.execute(alter)
    except asyncpg.InternalServerError:
        """Another process has just changed the same row."""
    except asyncpg.PostgresError as error:
        log.warning("pooler.statements_are_compiled", code=error.sqlstate)


async def keeps_settings(connection: asyncpg.Connection) -> bool:
    """Whether the session has `IDLE_TIMEOUT`, with which it was opened: a pooler drops the setting.

    One simple message asks, because a prepared statement may meet another session of the server.
    """
    ((name, setting),) = IDLE_TIMEOUT.items()
    status: str = await connection.execute(f"SELECT WHERE current_setting('{name}') = '{setting}'")
    return status == "SELECT 1"


class PoolerUrl(str):
    """The URL of a database behind a pooler."""

    __slots__ = ()


class PooledSessions(asyncpg.Connection):  # type: ignore[misc]
    """Begins each database transaction with its settings, in one message."""

    __slots__ = ()

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        if not args and query.startswith("BEGIN"):
            query = f"{query.rstrip(';')};{_TRANSACTION_SETTINGS}"
        status: str = await super().execute(query, *args, timeout=timeout)
        return status
