"""Puts the fresh tables in the place of the live ones, in one short database transaction.

Nothing is copied: tables change their schema. PostgreSQL plans cached statements of all sessions
again, because the tables that they name have changed, and finds the fresh tables under the names;
the columns are the same, so clients notice nothing. Views are pointed to the fresh tables.

The row of `chains` is locked first, as by every commit of blocks, so that the live index stands
still during the swap. A holder of the indexer's lease then gets LaneLost and begins a new term:
the swap raises the epoch.
"""

from collections.abc import Sequence
from typing import Final

import asyncpg

from ltzd.errors import LaneLost
from ltzd.rules.indexer.rebuilds import IndexHeight, final_after_swap, may_swap
from ltzd.store import wakeups
from ltzd.store.database import Connection
from ltzd.store.indexer.rebuild import fresh_tables, orders
from ltzd.store.indexer.rebuild.fresh_tables import FRESH, REPLACED
from ltzd.store.migrations.partitioning import dependent_views
from ltzd.store.wakeups import BLOCKS

_LOCK_TIMEOUT: Final = "400ms"
"""Readers wait for at most this time behind a swap that waits for an earlier reader. Below
PostgreSQL's deadlock_timeout (1 s), so that no reader is chosen as the victim of a deadlock."""


class TablesBusy(Exception):
    """Another session has held a lock on a table for too long: try again later."""


async def heights(connection: Connection) -> tuple[IndexHeight, IndexHeight] | None:
    """The fresh and the live height, or None if there are no fresh tables in use."""
    live_schema = await fresh_tables.live_schema(connection)
    rows = [
        await connection.fetchrow(_HEIGHT.format(schema=schema, lock=""))
        for schema in (FRESH, live_schema)
    ]
    if None in rows:
        return None
    fresh, live = map(_height, rows)
    return fresh, live


async def swap(connection: Connection, rebuild_id: int, tables: Sequence[str]) -> bool:
    """Swap in the caller's transaction, whose search path must not name the fresh tables.

    Returns False if the fresh tables are not as far as the live ones, or the rebuild is not being
    filled any more. Raises TablesBusy, and LaneLost if the schema was upgraded since the fresh
    tables were created: they lack what the upgrade has added. An upgrade that comes later waits
    for the locks, and changes the fresh tables in their new place.
    """
    live_schema = await fresh_tables.live_schema(connection)
    live_row = await connection.fetchrow(
        _HEIGHT.format(schema=live_schema, lock="FOR UPDATE"),
    )
    fresh_row = await connection.fetchrow(_HEIGHT.format(schema=FRESH, lock="FOR UPDATE"))
    if live_row is None or fresh_row is None:
        return False
    live, fresh = _height(live_row), _height(fresh_row)
    if not may_swap(fresh, live):
        return False
    if not await orders.advance(connection, rebuild_id, "filling", "swapped"):
        return False
    views = await dependent_views(connection, [f"{live_schema}.{table}" for table in tables])
    statements = [
        *await fresh_tables.moves(connection, tables, live_schema, REPLACED),
        *await fresh_tables.moves(connection, tables, FRESH, live_schema),
        *(f"CREATE OR REPLACE VIEW {view} AS {definition}" for view, definition in views),
    ]
    await _lock(connection, live_schema, tables)
    if not await orders.has_schema_revision(connection, rebuild_id):
        raise LaneLost("The schema has another revision than the fresh tables")
    # At once: readers wait from the lock to the commit.
    await connection.execute(";\n".join(statements))
    await connection.execute(
        f"""
        UPDATE {live_schema}.chains AS live
           SET cursor_number = fresh.cursor_number, cursor_hash = fresh.cursor_hash,
               head_number = fresh.head_number, final_number = $1,
               audited_number = fresh.audited_number, contracts = fresh.contracts,
               epoch = live.epoch + 1, contracts_epoch = live.epoch + 1,
               stopped_reason = NULL, stopped_at = NULL, updated_at = fresh.updated_at
          FROM {FRESH}.chains AS fresh
        """,  # noqa: S608
        final_after_swap(fresh, live),
    )
    await connection.execute(f"DELETE FROM {FRESH}.chains")  # noqa: S608
    await wakeups.notify(connection, BLOCKS)
    return True


async def _lock(connection: Connection, live_schema: str, tables: Sequence[str]) -> None:
    """Lock all tables or none: a reader that is in the way is waited for briefly."""
    names = [f"{schema}.{table}" for table in tables for schema in (live_schema, FRESH)]
    await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
    try:
        await connection.execute(f"LOCK TABLE {', '.join(names)} IN ACCESS EXCLUSIVE MODE")
    except asyncpg.LockNotAvailableError as error:
        raise TablesBusy("Another session holds a lock on a table of the index") from error


_HEIGHT = """
SELECT cursor_number, head_number, final_number, stopped_reason IS NOT NULL AS is_stopped
  FROM {schema}.chains
  {lock}
"""


def _height(row: asyncpg.Record) -> IndexHeight:
    return IndexHeight(
        row["cursor_number"], row["head_number"], row["final_number"], row["is_stopped"]
    )
