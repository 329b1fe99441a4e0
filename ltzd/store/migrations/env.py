"""How alembic reaches the database: one asyncpg connection, one advisory lock, one transaction.

asyncpg takes the URL as it stands: SQLAlchemy would hand on `sslmode`, `passfile` and several hosts
in words that asyncpg does not know.
"""

import asyncio
from functools import partial

from alembic import context
from sqlalchemy import Connection, pool, text
from sqlalchemy.ext.asyncio import create_async_engine

from ltzd.store.database import connect_to_any_server
from ltzd.store.session_settings import WRITTEN_FOR

MIGRATIONS_LOCK = 0x6C747A64  # "ltzd"
_CONNECT_SECONDS = 10.0
_LOCK_TIMEOUT = "1500ms"
"""Other sessions wait for at most this time behind a revision that waits for a table, which then
fails with asyncpg.LockNotAvailableError. Longer than PostgreSQL's `deadlock_timeout`, after which
an autovacuum gives the table up."""

_WITHOUT_TRANSACTION_TIMEOUT = """
SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout'
"""
"""Servers before PostgreSQL 17 do not have this limit."""


def _migrate(connection: Connection) -> None:
    context.configure(connection=connection, transaction_per_migration=False)
    with context.begin_transaction():
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATIONS_LOCK})
        connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'"))
        connection.execute(text(_WITHOUT_TRANSACTION_TIMEOUT))
        context.run_migrations()


async def _run() -> None:
    connect = partial(
        connect_to_any_server,
        context.config.attributes["url"],
        timeout=_CONNECT_SECONDS,
        server_settings={"application_name": "ltzd migrate", **WRITTEN_FOR},
    )
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=connect, poolclass=pool.NullPool
    )
    async with engine.connect() as connection:
        await connection.run_sync(_migrate)
        await connection.commit()
    await engine.dispose()


asyncio.run(_run())
