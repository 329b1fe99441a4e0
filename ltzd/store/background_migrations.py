"""Migrations of large tables, which run while the tables are used (decisions 0034 and 0042).

A revision enters a row in `background_migrations` for a table that it cannot convert in
milliseconds. An indexer of this version carries the rows out, one after the other, on a connection
of its own. Each step may be repeated: after a kill the next runner begins with the first step, and
a step that is done does nothing. No step blocks readers or writers for longer than its lock timeout
of half a second; a runner that is frozen in a database transaction loses it as other sessions do
(`role_pools`, `stuck_sessions`).

An advisory lock keeps a second runner out. The lock ends with its connection, on which all work is
done, so a lease would add nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import asyncpg
import msgspec
import structlog

from ltzd.concurrency.outages import Outage
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.store import database
from ltzd.store.connection_errors import reason_of
from ltzd.store.database import Connection
from ltzd.store.migrations import (
    concurrent_indexes,
    empty_balances,
    event_partitions,
    partitioning,
)
from ltzd.store.role_pools import SESSION_SETTINGS

log = structlog.get_logger()

_LOCK = 0x6C747A62  # "ltzb"
_BUSY_SECONDS = 1.0
"""The pause after a step that met locks of others, before it is tried again."""
_ERROR_SECONDS = 60.0
"""The pause after any other error, such as a full disk."""

Sleep = Callable[[float], Awaitable[None]]


class Step(msgspec.Struct, frozen=True):
    """`description` is shown to people while the step runs, after the table's name."""

    description: str
    run: Callable[[Connection, str], Awaitable[None]]


STEPS: Mapping[str, Sequence[Step]] = {
    "partition": (
        Step("builds its indexes", partitioning.build_indexes),
        Step("checks the heights of its rows", partitioning.bound),
        Step("becomes the first partition", partitioning.swap),
    ),
    "partition-by-time": (
        Step("checks the ids of its rows", event_partitions.bound),
        Step("becomes the first partition", event_partitions.swap),
    ),
    "index": (Step("gets an index", concurrent_indexes.build_added),),
    "indexes": (Step("gets an index", concurrent_indexes.build_added),),
    "replace-index": (Step("gets another index", concurrent_indexes.replace),),
    "shrink": (Step("loses the balances of zero", empty_balances.delete),),
}
"""The steps by the first word of a migration's name; the rest of the name is their argument."""


class BackgroundMigration(msgspec.Struct, frozen=True):
    """A migration that is not finished. `progress` is the part of its step that is done, or None.

    `step` is None until a runner has begun.
    """

    name: str
    table: str
    step: str | None
    progress: float | None
    started_seconds: float | None
    error: str | None


async def list_pending(connection: Connection) -> tuple[BackgroundMigration, ...]:
    rows = await connection.fetch(
        """
        SELECT m.name, m.table_name, m.step,
               (SELECT max(blocks_done::float8 / nullif(blocks_total, 0))
                  FROM pg_stat_progress_create_index
                 WHERE relid = to_regclass(m.table_name)),
               extract(epoch FROM now() - m.started_at)::float8, m.error
          FROM background_migrations m
         WHERE m.finished_at IS NULL
         ORDER BY m.name
        """
    )
    return tuple(BackgroundMigration(*row) for row in rows)


class BackgroundMigrations:
    """Runs what is pending. `may_run` tells whether this process may do so now.

    A process of an earlier version does not know the new layout as an indexer, so the indexer of
    this version runs them: then no earlier indexer works. Migrations that a newer version has
    entered, while its processes replace the others, are left to it.
    """

    def __init__(self, url: str, may_run: Callable[[], bool], sleep: Sleep = asyncio.sleep) -> None:
        self._url = url
        self._may_run = may_run
        self._sleep = sleep

    async def run(self) -> None:
        """Return once nothing is pending that this version knows.

        Waits while another process runs the migrations.
        """
        outage = Outage("background_migrations.interrupted", "background_migrations.continue")
        while True:
            if self._may_run():
                try:
                    if await self._run_on_one_connection():
                        return
                    outage.over()
                # Misconfigured: a refusal, although the same URL worked at the start.
                except (DatabaseUnavailable, Misconfigured) as error:
                    outage.failed(error.message)
                except database.LOST as error:
                    outage.failed(reason_of(error))
            await self._sleep(_BUSY_SECONDS)

    async def _run_on_one_connection(self) -> bool:
        """Return True once no migration is pending that this version knows."""
        connection = await database.connect(self._url, "migrations", settings=SESSION_SETTINGS)
        try:
            await _lift_limits(connection)
            is_alone = await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK)
            known = [each for each in await list_pending(connection) if _kind(each) in STEPS]
            if is_alone:
                for migration in known:
                    await self._carry_out(connection, migration)
            return is_alone or not known
        finally:
            connection.terminate()

    async def _carry_out(self, connection: Connection, migration: BackgroundMigration) -> None:
        for step in STEPS[_kind(migration)]:
            await _note(connection, migration, step)
            while not await self._attempt(connection, migration, step):
                pass
        await connection.execute(
            """
            UPDATE background_migrations SET finished_at = now(), error = NULL WHERE name = $1
            """,
            migration.name,
        )
        log.info("background_migrations.finished", migration=migration.name)

    async def _attempt(
        self, connection: Connection, migration: BackgroundMigration, step: Step
    ) -> bool:
        try:
            await step.run(connection, migration.table)
        except asyncpg.LockNotAvailableError:
            await self._sleep(_BUSY_SECONDS)
            return False
        except database.LOST:
            raise
        except asyncpg.PostgresError as error:
            text = f"{error.sqlstate} {getattr(error, 'constraint_name', None) or ''}".strip()
            log.error("background_migrations.failed", migration=migration.name, reason=text)
            await connection.execute(
                "UPDATE background_migrations SET error = $2 WHERE name = $1", migration.name, text
            )
            await self._sleep(_ERROR_SECONDS)
            return False
        return True


async def _lift_limits(connection: Connection) -> None:
    """Override the limits of the server, the database or the role, which are for short statements.

    A build that they end would begin anew each second. Steps that lock a table set limits of their
    own.
    """
    await connection.execute(
        """
        SELECT set_config(name, '0', false)
          FROM pg_settings
         WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout')
        """
    )


def _kind(migration: BackgroundMigration) -> str:
    return migration.name.partition(" ")[0]


async def _note(connection: Connection, migration: BackgroundMigration, step: Step) -> None:
    log.info("background_migrations.step", migration=migration.name, step=step.description)
    await connection.execute(
        """
        UPDATE background_migrations
           SET step = $2, started_at = coalesce(started_at, now()), error = NULL
         WHERE name = $1
        """,
        migration.name,
        step.description,
    )
