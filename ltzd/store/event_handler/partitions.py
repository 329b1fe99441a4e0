"""Partitions of the table of events by time, created ahead of the events.

A partition is named after the Unix time at which its ids begin. `ensure` is called each minute by
the role `deliveries`. While no process has that role, events whose time has no partition go to the
default partition, and `ensure` moves them when it creates theirs.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import asyncpg
import msgspec
import structlog

from ltzd.rules.event_handler import event_partitions as rules
from ltzd.rules.event_handler.event_ids import first_id, seconds_of
from ltzd.rules.event_handler.event_partitions import Bounds, Newest, Waiting
from ltzd.store.database import Connection
from ltzd.store.migrations import partitioning
from ltzd.store.migrations.event_partitions import DEFAULT, EVENTS

log = structlog.get_logger()

_LOCK: Final = 0x6C747A65  # "ltze"
_LOCK_TIMEOUT: Final = "500ms"
"""Writers and readers of events wait for at most this time, while no partition can be attached."""
_MOVE_SECONDS: Final = 60.0


class Partition(msgspec.Struct, frozen=True):
    """The ids from `lower` on and below `upper`. `lower` is None for the partition of the ids
    of earlier versions, whose first id is the smallest of all.
    """

    name: str
    lower: UUID | None
    upper: UUID


async def list_partitions(connection: Connection) -> list[Partition]:
    """All partitions except the default one, the oldest first; none if the table has none."""
    rows = await connection.fetch(
        """
        SELECT part.relname::text AS name,
               substring(expression FROM 'FROM \\(''([0-9a-f-]{36})')::uuid AS lower,
               substring(expression FROM 'TO \\(''([0-9a-f-]{36})')::uuid AS upper
          FROM pg_inherits i
          JOIN pg_class part ON part.oid = i.inhrelid
         CROSS JOIN LATERAL pg_get_expr(part.relpartbound, part.oid) AS expression
         WHERE i.inhparent = to_regclass($1) AND expression <> 'DEFAULT'
         ORDER BY upper
        """,
        EVENTS,
    )
    return [Partition(row["name"], row["lower"], row["upper"]) for row in rows]


async def ensure(connection: Connection, now: int | None = None) -> None:
    """Create the partitions that events of the next days need; usually there is nothing to do.

    `now` is a Unix time, the database's unless given. Safe to call from several processes at once.
    If other sessions keep the table locked, nothing is changed, and the next call tries again.
    """
    if now is None:
        now = await connection.fetchval("SELECT extract(epoch FROM now())::bigint")
    try:
        while await _is_due(connection, now):
            async with exclusive(connection):
                if await _is_due(connection, now):
                    await _add(connection, now)
    except asyncpg.LockNotAvailableError:
        log.info("event_partitions.waits", reason="the table of events stayed locked")


@asynccontextmanager
async def exclusive(connection: Connection) -> AsyncIterator[None]:
    """A transaction in which no other process changes partitions.

    Raises asyncpg.LockNotAvailableError if it waits for any lock for more than half a second.
    """
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        yield


async def _is_due(connection: Connection, now: int) -> bool:
    newest = await _newest(connection)
    return newest is not None and rules.is_due(newest, now)


async def _newest(connection: Connection) -> Newest | None:
    """The newest partition except the default one, or None while the table is not partitioned."""
    partitions = await list_partitions(connection)
    if not partitions:
        return None
    newest = partitions[-1]
    size = await connection.fetchval(
        "SELECT pg_relation_size(to_regclass($1::text))", f"{newest.name}"
    )
    upper = seconds_of(newest.upper)
    assert upper is not None, f"{newest.name} ends with an id of another form"
    return Newest(None if newest.lower is None else seconds_of(newest.lower), upper, size)


async def _add(connection: Connection, now: int) -> None:
    newest = await _newest(connection)
    assert newest is not None
    # Nobody inserts into the default partition until the new partition is attached. Events of other
    # partitions are inserted meanwhile.
    await connection.execute(f"LOCK TABLE {DEFAULT} IN ACCESS EXCLUSIVE MODE")
    bounds = rules.next_bounds(newest, await _waiting(connection, newest.upper, now), now)
    schema = await connection.fetchval(
        "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass($1)", EVENTS
    )
    parent, partition = f"{schema}.{EVENTS}", f"{schema}.{EVENTS}_from_{bounds.lower}"
    # CREATE TABLE … PARTITION OF would lock the parent against readers.
    await connection.execute(f"CREATE TABLE {partition} (LIKE {parent} INCLUDING ALL)")
    for right in await partitioning.grants(connection, parent):
        await connection.execute(right % partition)
    await _move_waiting(connection, partition, bounds)
    await connection.execute(
        f"ALTER TABLE {parent} ATTACH PARTITION {partition} "
        f"FOR VALUES FROM ('{first_id(bounds.lower)}') TO ('{first_id(bounds.upper)}')"
    )
    log.info("event_partitions.created", begin=bounds.lower, end=bounds.upper)


async def _waiting(connection: Connection, upper: int, now: int) -> Waiting | None:
    """The rows of the default partition that the next partition could hold."""
    ends = first_id(upper), first_id(max(upper, now) + rules.AHEAD)
    rows = await connection.fetchval(
        f"""
        SELECT count(*)
          FROM (SELECT FROM {DEFAULT} WHERE id >= $1 AND id < $2 LIMIT $3) AS waiting
        """,  # noqa: S608
        *(*ends, rules.MOST_MOVED_ROWS + 1),
    )
    if not rows:
        return None
    first, last = [
        await connection.fetchval(
            f"SELECT id FROM {DEFAULT} WHERE id >= $1 AND id < $2 ORDER BY id {order} LIMIT 1",  # noqa: S608
            *ends,
        )
        for order in ("ASC", "DESC")
    ]
    return Waiting(rows, seconds_of(first) or upper, seconds_of(last) or upper)


async def _move_waiting(connection: Connection, partition: str, bounds: Bounds) -> None:
    await connection.execute(
        f"""
        WITH moved AS (DELETE FROM {DEFAULT} WHERE id >= $1 AND id < $2 RETURNING *)
        INSERT INTO {partition} SELECT * FROM moved
        """,  # noqa: S608
        first_id(bounds.lower),
        first_id(bounds.upper),
        timeout=_MOVE_SECONDS,
    )
