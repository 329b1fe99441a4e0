"""Reads facts about the server that not every server tells to every user.

Each function returns None where the server does not tell. Managed servers tell these facts to
nobody, or only with `wal_level = logical`.
"""

from typing import Final

import asyncpg

from ltzd.store.database import Connection

_NO_ANSWER: Final = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedFunctionError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.ObjectNotInPrerequisiteStateError,
)


async def timeline(connection: Connection) -> int | None:
    """The timeline of a primary: 1 in a new cluster, and each promotion begins another one.

    Returns None for a standby, too.
    """
    name = await _ask(connection, "SELECT pg_walfile_name(pg_current_wal_lsn())")
    return None if name is None else int(name[:8], 16)


async def system_identifier(connection: Connection) -> str | None:
    """The identifier of the cluster, which its standbys share."""
    return await _ask(connection, "SELECT system_identifier::text FROM pg_control_system()")


async def _ask(connection: Connection, question: str) -> str | None:
    try:
        async with connection.transaction():
            answer: str | None = await connection.fetchval(question)
    except _NO_ANSWER:
        return None
    return answer
