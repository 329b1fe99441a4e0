"""The table `rebuilds`: who ordered a rebuild of the index, and how far it has come.

    ordered -> copying -> filling -> swapped -> done
       ^          '----------'  (the fresh tables no longer fit: they are created again)
    ordered, copying, filling -> cancelled

At most one rebuild is open. A rebuild is open until `ended_at` is set, in the states `done` and
`cancelled`, after the last of its tables was dropped.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import asyncpg
import msgspec

from ltzd.store import wakeups
from ltzd.store.database import Connection
from ltzd.store.wakeups import BLOCKS
from ltzd.values import Address

Reason = Literal["ordered", "contracts"]
State = Literal["ordered", "copying", "filling", "swapped", "done", "cancelled"]

WAITS_FOR_MIGRATIONS = "The rebuild begins once the background migrations are finished"
"""The `error` of a rebuild that has to wait: a fresh table has the layout of its live one, which
must not change before the swap."""


class Rebuild(msgspec.Struct, frozen=True):
    """`contracts` are those whose facts the fresh tables hold, or None until the rebuild begins.

    - Facts below `from_block` are kept.
    - `revision` is the schema's revision when the fresh tables were created.
    - `error` tells why the last attempt to go on failed.
    """

    id: int
    reason: Reason
    from_block: int
    contracts: tuple[Address, ...] | None
    state: State
    revision: str | None
    error: str | None
    ordered_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class RebuildProgress(msgspec.Struct, frozen=True):
    """How far the open rebuild is.

    `block` is the last block whose facts are in the fresh tables, or None before they exist and
    after the swap. `first_block` is the first block to read, `head_number` the last one.
    """

    id: int
    reason: Reason
    from_block: int
    state: State
    error: str | None
    ordered_seconds: float
    """The seconds since the rebuild was ordered."""
    first_block: int | None
    block: int | None
    head_number: int | None


_COLUMNS = (
    "id, reason, from_block, contracts, state, revision, error, ordered_at, started_at, ended_at"
)


async def find_open(connection: Connection) -> Rebuild | None:
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM rebuilds WHERE ended_at IS NULL"  # noqa: S608
    )
    return None if row is None else _rebuild(row)


async def progress(connection: Connection) -> RebuildProgress | None:
    """The progress of the open rebuild, or None if none is open."""
    row = await connection.fetchrow(
        """
        SELECT id, reason, from_block, state, error,
               extract(epoch FROM now() - ordered_at)::float8,
               fresh.first_block, fresh.cursor_number, fresh.head_number
          FROM rebuilds
          LEFT JOIN ltzd_rebuild.chains AS fresh ON state IN ('copying', 'filling')
         WHERE ended_at IS NULL
        """
    )
    return None if row is None else RebuildProgress(*row)


async def find(connection: Connection, rebuild_id: int) -> Rebuild | None:
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM rebuilds WHERE id = $1",  # noqa: S608
        rebuild_id,
    )
    return None if row is None else _rebuild(row)


async def order(
    connection: Connection,
    reason: Reason,
    *,
    from_block: int = 0,
    contracts: Sequence[Address] | None = None,
) -> int | None:
    """Order a rebuild; returns its id, or None if another rebuild is open."""
    rebuild_id: int | None = await connection.fetchval(
        """
        INSERT INTO rebuilds (reason, from_block, contracts)
        VALUES ($1, $2, $3)
            ON CONFLICT DO NOTHING
     RETURNING id
        """,
        reason,
        from_block,
        contracts,
    )
    await wakeups.notify(connection, BLOCKS)
    return rebuild_id


async def order_for_contracts(connection: Connection, contracts: Sequence[Address]) -> None:
    """Order a rebuild that reads these contracts, and cancel one that reads others.

    Call it again until the index has the contracts' facts: while a cancelled rebuild still drops
    its tables, none is ordered.
    """
    rebuild = await find_open(connection)
    if rebuild is not None and rebuild.contracts not in (None, tuple(contracts)):
        await cancel(connection, rebuild.id)
        return
    if rebuild is None:
        await order(connection, "contracts", contracts=contracts)


async def cancel(connection: Connection, rebuild_id: int) -> bool:
    """End a rebuild that has not swapped; returns whether there was one to end."""
    cancelled: bool | None = await connection.fetchval(
        """
        UPDATE rebuilds
           SET state = 'cancelled'
         WHERE id = $1 AND state IN ('ordered', 'copying', 'filling')
     RETURNING true
        """,
        rebuild_id,
    )
    await wakeups.notify(connection, BLOCKS)
    return bool(cancelled)


async def cancel_for_contracts(connection: Connection) -> bool:
    """End a rebuild that was ordered for other contracts than the index's, before the swap."""
    rebuild = await find_open(connection)
    if rebuild is None or rebuild.reason != "contracts":
        return False
    return await cancel(connection, rebuild.id)


async def is_still(connection: Connection, rebuild: Rebuild) -> bool:
    """Whether the row is as `rebuild` was read, locked to the end of the transaction.

    A process that was frozen since then may not create tables that another one fills by now.
    """
    row = await connection.fetchrow(
        "SELECT state, revision, contracts FROM rebuilds WHERE id = $1 FOR UPDATE", rebuild.id
    )
    if row is None:
        return False
    contracts = None if row["contracts"] is None else tuple(map(Address, row["contracts"]))
    return (row["state"], row["revision"], contracts) == (
        rebuild.state,
        rebuild.revision,
        rebuild.contracts,
    )


async def restart_if_kept(connection: Connection, block: int) -> None:
    """Begin an open rebuild that keeps facts of `block` again; the caller corrects these facts.

    A rebuild that has not begun waits for the end of this transaction and copies corrected facts.
    Does nothing for facts that are corrected in the fresh tables themselves.
    """
    await connection.execute(
        """
        UPDATE rebuilds
           SET state = 'ordered'
         WHERE state IN ('ordered', 'copying', 'filling') AND from_block > $1
           AND current_schema() <> 'ltzd_rebuild'
        """,
        block,
    )


async def begin(
    connection: Connection, rebuild_id: int, contracts: Sequence[Address], revision: str
) -> None:
    """Record that the fresh tables exist, so that facts are copied and then read from a node."""
    await connection.execute(
        """
        UPDATE rebuilds
           SET state = 'copying', contracts = $2, revision = $3, error = NULL,
               started_at = coalesce(started_at, now())
         WHERE id = $1
        """,
        rebuild_id,
        contracts,
        revision,
    )


async def has_schema_revision(connection: Connection, rebuild_id: int) -> bool:
    """Whether the schema has the revision with which the fresh tables were created."""
    has_it: bool | None = await connection.fetchval(
        """
        SELECT revision = (SELECT version_num FROM alembic_version)
          FROM rebuilds
         WHERE id = $1
        """,
        rebuild_id,
    )
    return bool(has_it)


async def advance(connection: Connection, rebuild_id: int, before: State, state: State) -> bool:
    """Move the state on; returns False if the state was not `before`."""
    moved: bool | None = await connection.fetchval(
        """
        UPDATE rebuilds
           SET state = $3, error = NULL,
               swapped_at = CASE WHEN $3 = 'swapped' THEN now() ELSE swapped_at END
         WHERE id = $1 AND state = $2
     RETURNING true
        """,
        rebuild_id,
        before,
        state,
    )
    return bool(moved)


async def end(connection: Connection, rebuild_id: int) -> bool:
    """End a rebuild, in the transaction that drops the last of its tables.

    Returns False if it has ended already. Then the tables are those of another one.
    """
    ended: bool | None = await connection.fetchval(
        """
        UPDATE rebuilds
           SET state = CASE state WHEN 'swapped' THEN 'done' ELSE state END, ended_at = now(),
               error = NULL
         WHERE id = $1 AND state IN ('swapped', 'cancelled') AND ended_at IS NULL
     RETURNING true
        """,
        rebuild_id,
    )
    return bool(ended)


async def note_error(connection: Connection, rebuild_id: int, error: str | None) -> None:
    await connection.execute(
        "UPDATE rebuilds SET error = $2 WHERE id = $1 AND error IS DISTINCT FROM $2",
        rebuild_id,
        error,
    )


def _rebuild(row: asyncpg.Record) -> Rebuild:
    contracts = row["contracts"]
    columns = dict(row) | {
        "contracts": None if contracts is None else tuple(map(Address, contracts))
    }
    return Rebuild(**columns)
