"""Creates the fresh tables of a rebuild, moves tables between schemas, and drops them.

A connection whose `search_path` begins with `FRESH` writes to the fresh tables with the same
statements that write to the live ones. `SHADOWS` are empty tables that hide the live ones from it:
the indexer marks rewards, redemptions and transactions, and a rebuild must not do so before it is
swapped.

A fresh table has its live table's columns, checks, keys, indexes with their names, storage
parameters, owner and privileges. Partitions are created as facts come (`partitions.ensure`).
"""

from collections.abc import Iterable
from typing import Final

from ltzd.store.database import Connection

FRESH: Final = "ltzd_rebuild"
REPLACED: Final = "ltzd_replaced"
"""The schema of the old tables after the swap, until they are dropped."""
SHADOWS: Final = ("rewards", "site_redemptions", "transactions")
CHAINS: Final = "chains"


async def create(connection: Connection, tables: Iterable[str]) -> None:
    """Create the fresh tables anew, in the caller's transaction.

    Drops those that an earlier attempt has left. `chains` is created without a row.
    """
    live = await live_schema(connection)
    await _drop_all(connection, FRESH)
    for table in tables:
        await _create_like(connection, live, table)
    for table in SHADOWS:
        await connection.execute(
            f"CREATE TABLE {FRESH}.{table} (LIKE {live}.{table} INCLUDING DEFAULTS)"
        )
    await _create_chains(connection, live)


async def drop_fresh(connection: Connection) -> None:
    """Drop the fresh tables, in the caller's transaction; `chains` stays, empty."""
    await _drop_all(connection, FRESH)
    await _create_chains(connection, await live_schema(connection))


async def drop_replaced(connection: Connection) -> bool:
    """Drop one old table, and return whether there was one; repeat it to drop them all.

    One table for each transaction: each is locked until its last reader is done.
    """
    for name in await _tables(connection, REPLACED, limit=1):
        await connection.execute(f"DROP TABLE {name}")
        return True
    return False


async def moves(
    connection: Connection, tables: Iterable[str], source: str, target: str
) -> list[str]:
    """Statements that move tables with their indexes and partitions to another schema."""
    return [
        f"ALTER TABLE {name} SET SCHEMA {target}"
        for table in tables
        for name in (
            *await _partitions(connection, f"{source}.{table}"),
            f"{source}.{table}",
        )
    ]


async def live_schema(connection: Connection) -> str:
    """The schema of the live tables, also if the search path begins with the fresh ones."""
    schema: str = await connection.fetchval(
        """
        SELECT quote_ident(schema)
          FROM unnest(current_schemas(false)) WITH ORDINALITY AS path (schema, place)
         WHERE schema <> $1
         ORDER BY place
         LIMIT 1
        """,
        FRESH,
    )
    return schema


async def _create_like(connection: Connection, live: str, table: str) -> None:
    """Each index gets its live index's name, which migrations use: LIKE would invent another."""
    source, target = f"{live}.{table}", f"{FRESH}.{table}"
    row = await connection.fetchrow(
        """
        SELECT pg_get_partkeydef(oid) AS key, array_to_string(reloptions, ', ') AS options,
               format('ALTER TABLE %s OWNER TO %I', $2::text, pg_get_userbyid(relowner)) AS owner
          FROM pg_class
         WHERE oid = $1::text::regclass
        """,
        source,
        target,
    )
    await connection.execute(
        f"CREATE TABLE {target} (LIKE {source} INCLUDING ALL EXCLUDING INDEXES)"
        + (f" PARTITION BY {row['key']}" if row["key"] else "")
        + (f" WITH ({row['options']})" if row["options"] else "")
    )
    for statement in await _keys_and_indexes(connection, source, target):
        await connection.execute(statement)
    await connection.execute(row["owner"])
    for statement in await _grants(connection, source, target):
        await connection.execute(statement)


async def _keys_and_indexes(connection: Connection, source: str, target: str) -> list[str]:
    rows = await connection.fetch(
        """
        SELECT format('ALTER TABLE %s ADD CONSTRAINT %I %s', $2::text, conname,
                      pg_get_constraintdef(oid)) AS statement
          FROM pg_constraint
         WHERE conrelid = $1::text::regclass AND contype IN ('p', 'u', 'x')
         UNION ALL
        SELECT regexp_replace(pg_get_indexdef(indexrelid),
                              ' ON (ONLY )?([^ "]|"([^"]|"")*")+ USING ',
                              format(' ON %s USING ', $2::text))
          FROM pg_index
         WHERE indrelid = $1::text::regclass AND indisvalid
           AND NOT EXISTS (SELECT FROM pg_constraint
                            WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
        """,
        source,
        target,
    )
    return [row["statement"] for row in rows]


async def _grants(connection: Connection, source: str, target: str) -> list[str]:
    rows = await connection.fetch(
        """
        SELECT format('GRANT %s ON %s TO %s%s', privilege_type, $2::text,
                      CASE grantee WHEN 0 THEN 'PUBLIC'
                                   ELSE quote_ident(pg_get_userbyid(grantee)) END,
                      CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END) AS statement
          FROM pg_class
         CROSS JOIN LATERAL aclexplode(relacl)
         WHERE oid = $1::text::regclass AND grantee <> relowner
        """,
        source,
        target,
    )
    return [row["statement"] for row in rows]


async def _create_chains(connection: Connection, live: str) -> None:
    await connection.execute(f"DROP TABLE IF EXISTS {FRESH}.{CHAINS}")
    await connection.execute(f"CREATE TABLE {FRESH}.{CHAINS} (LIKE {live}.{CHAINS} INCLUDING ALL)")


async def _drop_all(connection: Connection, schema: str) -> None:
    for name in await _tables(connection, schema):
        await connection.execute(f"DROP TABLE {name}")


async def _tables(connection: Connection, schema: str, limit: int | None = None) -> list[str]:
    """The tables of a schema that are no partitions of another one; but not `chains`."""
    rows = await connection.fetch(
        """
        SELECT format('%I.%I', $1::text, relname) AS name
          FROM pg_class
         WHERE relnamespace = to_regnamespace($1::text) AND relkind IN ('r', 'p')
           AND NOT relispartition AND relname <> $2
         ORDER BY relname
         LIMIT $3
        """,
        schema,
        CHAINS,
        limit,
    )
    return [row["name"] for row in rows]


async def _partitions(connection: Connection, table: str) -> list[str]:
    rows = await connection.fetch(
        """
        SELECT format('%I.%I', nspname, relname) AS name
          FROM pg_inherits
          JOIN pg_class c ON c.oid = inhrelid
          JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE inhparent = $1::text::regclass
         ORDER BY relname
        """,
        table,
    )
    return [row["name"] for row in rows]
