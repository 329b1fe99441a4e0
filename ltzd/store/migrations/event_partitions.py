"""Turns the table of events into one that is partitioned by id (revision 0029, decision 0042).

New ids sort by time (`rules/event_handler/event_ids`), so a range of ids is a range of time, and
the primary key stays. A table without rows is converted by the revision. A table with rows is
converted while it is used (`background_migrations`): `bound` has PostgreSQL check that all ids are
below one that is a week ahead, and `swap` attaches the table as the first partition, without
reading it and without moving a row. Each function may be repeated after an interruption at any
point.

Ids that fit no partition go to a default partition, so that no insert can fail. Statements of the
version before fit both layouts.
"""

from typing import Any, Final
from uuid import UUID

from ltzd.rules.event_handler.event_ids import first_id
from ltzd.store.migrations import partitioning

Connection = Any
"""An asyncpg connection."""

EVENTS: Final = "events"
FIRST: Final = "events_from_0"
"""The partition of the ids of before."""
DEFAULT: Final = "events_default"
BOUND: Final = "events_bound"
"""The CHECK of a table under conversion. A statement that violates it calls `lift_bound`."""
_SLACK_SECONDS: Final = 7 * 86_400
"""Events may be inserted for this time while the table is converted, before the bound is lifted."""
_LEAST_SLACK_SECONDS: Final = 86_400
_ROUND_SECONDS: Final = 2**16
_STEP_SECONDS: Final = 7 * 86_400.0
"""A statement that reads the whole table may take this time."""
_LOCK_TIMEOUT: Final = "500ms"


async def convert_new(connection: Connection) -> bool:
    """Convert a table without rows, in the caller's transaction. Returns False for other ones."""
    if await connection.fetchval(f"SELECT EXISTS (SELECT FROM {EVENTS})"):  # noqa: S608
        return False
    await _put_in_place(connection, first_id(0))
    return True


async def bound(connection: Connection, _table: str = EVENTS) -> None:
    """Let PostgreSQL check that every id is below one of the next days, outside of a transaction.

    Writers are not blocked while the table is read. Random ids of before that happen to lie above
    the bound wait in what becomes the default partition.
    """
    if await partitioning.is_partitioned(connection, EVENTS):
        return
    now = await connection.fetchval("SELECT extract(epoch FROM now())::bigint")
    upper, is_valid = await _upper_bound(connection)
    if upper is None or upper < first_id(now + _LEAST_SLACK_SECONDS):
        upper = first_id((now + _SLACK_SECONDS) // _ROUND_SECONDS * _ROUND_SECONDS)
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            await connection.execute(f"LOCK TABLE {EVENTS} IN ACCESS EXCLUSIVE MODE")
            await lift_bound(connection)
            await connection.execute(
                f"CREATE TABLE IF NOT EXISTS {DEFAULT} (LIKE {EVENTS} INCLUDING ALL)"
            )
            await _move(connection, DEFAULT, EVENTS, "true")
            await _move(connection, EVENTS, DEFAULT, f"id >= '{upper}'")
            await connection.execute(
                f"ALTER TABLE {EVENTS} ADD CONSTRAINT {BOUND} CHECK (id < '{upper}') NOT VALID"
            )
        is_valid = False
    if not is_valid:
        await connection.execute(
            f"ALTER TABLE {EVENTS} VALIDATE CONSTRAINT {BOUND}", timeout=_STEP_SECONDS
        )


async def lift_bound(connection: Connection) -> None:
    """Remove the bound of a table under conversion, which then begins again with `bound`."""
    await connection.execute(f"ALTER TABLE {EVENTS} DROP CONSTRAINT IF EXISTS {BOUND}")


async def swap(connection: Connection, _table: str = EVENTS) -> None:
    """Put a partitioned table in the place of the table, whose bound is verified.

    Locks the table for milliseconds, however many rows it has. Raises
    asyncpg.LockNotAvailableError if the table stays locked by others.
    """
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        await connection.execute(f"LOCK TABLE {EVENTS} IN ACCESS EXCLUSIVE MODE")
        if await partitioning.is_partitioned(connection, EVENTS):
            return
        upper, is_valid = await _upper_bound(connection)
        assert upper is not None, f"{EVENTS} has no bound"
        assert is_valid, f"the bound of {EVENTS} is not verified"
        await _put_in_place(connection, upper)


async def _put_in_place(connection: Connection, upper: UUID) -> None:
    schema = await connection.fetchval(
        "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass($1)", EVENTS
    )
    parent = f"{schema}.{EVENTS}"
    rights = await partitioning.grants(connection, EVENTS)
    await connection.execute(
        f"""
        ALTER TABLE {EVENTS} RENAME TO {FIRST};
        ALTER TABLE {FIRST} RENAME CONSTRAINT {EVENTS}_pkey TO {FIRST}_pkey;
        ALTER INDEX {EVENTS}_by_brand RENAME TO {FIRST}_by_brand;
        CREATE TABLE {parent} (LIKE {FIRST} INCLUDING COMMENTS INCLUDING CONSTRAINTS
                               INCLUDING DEFAULTS INCLUDING STATISTICS INCLUDING STORAGE)
        PARTITION BY RANGE (id);
        ALTER TABLE {parent} DROP CONSTRAINT IF EXISTS {BOUND},
                             ADD CONSTRAINT {EVENTS}_pkey PRIMARY KEY (id);
        CREATE INDEX {EVENTS}_by_brand ON {parent} (brand_id, created_at);
        CREATE TABLE IF NOT EXISTS {schema}.{DEFAULT} (LIKE {parent} INCLUDING ALL);
        """
    )
    for relation in (parent, f"{schema}.{DEFAULT}"):
        for right in rights:
            await connection.execute(right % relation)
    await connection.execute(
        f"""
        ALTER TABLE {parent} ATTACH PARTITION {FIRST} FOR VALUES FROM (MINVALUE) TO ('{upper}');
        ALTER TABLE {FIRST} DROP CONSTRAINT IF EXISTS {BOUND};
        ALTER TABLE {parent} ATTACH PARTITION {schema}.{DEFAULT} DEFAULT;
        """
    )


async def _move(connection: Connection, source: str, target: str, which: str) -> None:
    await connection.execute(
        f"""
        WITH moved AS (DELETE FROM {source} WHERE {which} RETURNING *)
        INSERT INTO {target} SELECT * FROM moved
        """  # noqa: S608
    )


async def _upper_bound(connection: Connection) -> tuple[UUID | None, bool]:
    """The id that all ids are below by a CHECK, and whether PostgreSQL has verified it."""
    row = await connection.fetchrow(
        """
        SELECT substring(pg_get_constraintdef(oid) FROM '< ''([0-9a-f-]+)')::uuid AS upper,
               convalidated
          FROM pg_constraint
         WHERE conrelid = to_regclass($1) AND conname = $2
        """,
        EVENTS,
        BOUND,
    )
    return (None, False) if row is None else (row[0], row[1])
