"""Partitions of the index's tables by height, created before a commit needs them.

`ensure` finds the tables by the connection's search path, so a rebuild in a schema of its own gets
partitions of its own. A partition is named after its table and its first block.

A partition should hold about a gigabyte: few enough that a lookup without a height may ask each of
them, and small enough to vacuum, copy or index alone. Chains differ a thousandfold in blocks and
facts a day, so each new partition's width follows from the size of the one before it.
"""

from ltzd.rules.indexer.partition_widths import next_width, upper_bound
from ltzd.store.database import Connection
from ltzd.store.migrations import partitioning
from ltzd.store.migrations.partitioning import TABLES

_LOCK = 0x6C747A70  # "ltzp"


async def ensure(connection: Connection, last: int) -> None:
    """Create the partitions that blocks up to the height `last` need.

    Safe to call from several processes at once. In the caller's transaction, if there is one: the
    new partitions are empty, so no statement waits for them. Tables that are not partitioned yet
    (`migrations/partitioning`) are left as they are.
    """
    if not await _lacking(connection, last):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        for name, upper in await _lacking(connection, last):
            if upper is None:
                await partitioning.lift_reached_bounds(connection, last)
            else:
                await _add(connection, name, upper, last)


async def _lacking(connection: Connection, last: int) -> list[tuple[str, int | None]]:
    """The tables without a partition for `last`, each with the first height that lacks one.

    The height is None for a table that is being converted and has come near its bound.
    """
    rows = await connection.fetch(
        """
        SELECT t.name, coalesce(newest.upper, 0) AS upper, t.relkind = 'p' AS is_partitioned
          FROM (SELECT name, c.oid, c.relkind
                  FROM unnest($1::text[]) AS name
                  JOIN pg_class c ON c.oid = to_regclass(name)) AS t
          LEFT JOIN LATERAL (
               SELECT max(substring(pg_get_expr(part.relpartbound, part.oid)
                                    FROM 'TO \\(''?([0-9]+)')::bigint) AS upper
                 FROM pg_inherits i
                 JOIN pg_class part ON part.oid = i.inhrelid
                WHERE i.inhparent = t.oid) AS newest ON true
         WHERE t.relkind = 'p' AND coalesce(newest.upper, 0) <= $2
            OR t.relkind = 'r' AND EXISTS (
               SELECT FROM pg_constraint
                WHERE conrelid = t.oid AND conname = t.name || '_bound'
                  AND substring(pg_get_constraintdef(pg_constraint.oid)
                                FROM '< ''?([0-9]+)')::bigint <= $2)
        """,
        list(TABLES),
        last,
    )
    return [(row["name"], row["upper"] if row["is_partitioned"] else None) for row in rows]


async def _add(connection: Connection, name: str, lower: int, last: int) -> None:
    schema = await connection.fetchval(
        "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass($1)", name
    )
    upper = upper_bound(last, await _width(connection, name, lower))
    parent, partition = f"{schema}.{name}", f"{schema}.{name}_from_{lower}"
    # CREATE TABLE … PARTITION OF would lock the parent against readers.
    await connection.execute(f"CREATE TABLE {partition} (LIKE {parent} INCLUDING ALL)")
    for right in await partitioning.grants(connection, parent):
        await connection.execute(right % partition)
    await connection.execute(
        f"ALTER TABLE {parent} ATTACH PARTITION {partition} FOR VALUES FROM ({lower}) TO ({upper})"
    )


async def _width(connection: Connection, name: str, lower: int) -> int:
    """The width, in blocks, of the partition that begins at `lower`."""
    height = TABLES[name].height
    newest = await connection.fetchrow(
        """
        SELECT i.inhrelid::regclass::text AS name, pg_relation_size(i.inhrelid) AS size
          FROM pg_inherits i
         WHERE i.inhparent = to_regclass($1)
         ORDER BY substring(i.inhrelid::regclass::text FROM '_from_([0-9]+)$')::bigint DESC
         LIMIT 1
        """,
        name,
    )
    if newest is None:
        return next_width(0, 0)
    first: int | None = await connection.fetchval(
        f"SELECT min({height}) FROM {newest['name']}"  # noqa: S608
    )
    return next_width(0 if first is None else max(lower - first, 0), newest["size"])
