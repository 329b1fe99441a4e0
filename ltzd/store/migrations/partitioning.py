"""Turns the index's large tables into tables partitioned by height (revision 0024, decision 0034).

The tables of a new database are converted at once by the revision. Other tables are converted while
they are used (`background_migrations`): `build_indexes` and `bound` make what the first partition
needs without blocking readers or writers, and `swap` puts a partitioned table in the old table's
place, with the old table as its first partition. No row is moved. Each function may be repeated
after an interruption at any point.

The primary key changes from the block's hash to its height: a partitioned table's key must hold the
height, canonical blocks have one block for each height, and a key that only grows is cheaper to
write. Statements that run on both layouts therefore name no columns in ON CONFLICT.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ltzd.store.migrations import concurrent_indexes

Connection = Any
"""An asyncpg connection."""

FIRST_WIDTH: Final = 2**20
"""Blocks of the first partition of a new database. Bounds of partitions are its multiples or
fractions."""
_SLACK_BLOCKS: Final = 2**24
"""Blocks that may be added while a table with rows is converted."""
_STEP_SECONDS: Final = 7 * 86400.0
"""A statement that reads a whole table may take this time."""
_LOCK_TIMEOUT: Final = "500ms"
"""Readers and writers of a table wait for at most this time behind `swap`, which then raises
asyncpg.LockNotAvailableError. Shorter than PostgreSQL's `deadlock_timeout`: if a reader of a view
and `swap` wait for each other, `swap` gives up."""


class PartitionedTable(msgspec.Struct, frozen=True):
    """`height` is the column of the block's number, `key` the primary key.

    `indexes` holds the columns of the other indexes. `dropped` are the indexes of the old layout
    that the new primary key replaces.
    """

    name: str
    height: str = "block_number"
    key: str = "block_number, log_index"
    indexes: Mapping[str, str] = msgspec.field(default_factory=dict)
    dropped: Sequence[str] = ()


TABLES: Final[Mapping[str, PartitionedTable]] = {
    table.name: table
    for table in (
        PartitionedTable("blocks", "number", "number"),
        PartitionedTable("transfers", dropped=["transfers_by_block"]),
        PartitionedTable(
            "mints",
            # The seq of a reward's reference: an old table has no such index.
            indexes={"mints_by_seq": "(substring(reference FROM 25))"},
            dropped=["mints_by_block"],
        ),
        PartitionedTable(
            "perk_transfers",
            indexes={"perk_transfers_by_token": "token_id, block_number, log_index"},
            dropped=["perk_transfers_by_block"],
        ),
        PartitionedTable(
            "perk_claims",
            indexes={"perk_claims_by_user": "user_address, collection_id"},
            dropped=["perk_claims_by_block"],
        ),
        PartitionedTable(
            "charge_redemptions",
            indexes={"charge_redemptions_by_token": "token_id, block_number, log_index"},
            dropped=["charge_redemptions_by_block"],
        ),
        PartitionedTable(
            "purchases",
            indexes={"purchases_by_buyer": "buyer, reference"},
            dropped=["purchases_by_block"],
        ),
        PartitionedTable(
            "deal_facts",
            indexes={"deal_facts_by_deal": "deal_id, block_number, log_index"},
            dropped=["deal_facts_by_block"],
        ),
    )
}


async def is_partitioned(connection: Connection, name: str) -> bool:
    """Whether the table that the search path finds has the new layout."""
    kind = await connection.fetchval(
        "SELECT relkind::text FROM pg_class WHERE oid = to_regclass($1)", name
    )
    return bool(kind == "p")


async def convert_new(connection: Connection) -> list[str]:
    """Convert the tables of a database that follows no chain yet, in the caller's transaction.

    Returns the tables of any other database. These tables are converted in the background, once no
    indexer of an earlier version may work on them.
    """
    if await connection.fetchval("SELECT EXISTS (SELECT FROM chains)"):
        return list(TABLES)
    for table in TABLES.values():
        for index, (kind, columns) in _needed_indexes(table).items():
            await connection.execute(
                f"CREATE {kind} IF NOT EXISTS {index} ON {table.name} ({columns})"
            )
        await _put_in_place(connection, table, FIRST_WIDTH)
    return []


async def build_indexes(connection: Connection, name: str) -> None:
    """Build the index of the new primary key beside the old one, and the other indexes that the
    table lacks, outside of a transaction.
    """
    table = TABLES[name]
    if await is_partitioned(connection, name):
        return
    for index, (kind, columns) in _needed_indexes(table).items():
        await concurrent_indexes.build(connection, kind, index, f"{name} ({columns})")


async def bound(connection: Connection, name: str) -> None:
    """Let PostgreSQL check that every row is below a height, outside of a transaction.

    Writers are not blocked while the table is read. A bound that the chain has come near is
    replaced by a higher one.
    """
    if await is_partitioned(connection, name):
        return
    table = TABLES[name]
    upper, is_valid = await _upper_bound(connection, table)
    reached = await _reached(connection, table)
    if upper is None or upper - reached < FIRST_WIDTH:
        new = (reached + _SLACK_BLOCKS) // FIRST_WIDTH * FIRST_WIDTH
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            await connection.execute(
                f"""
                ALTER TABLE {name}
                  DROP CONSTRAINT IF EXISTS {_bound_name(table)},
                  ADD CONSTRAINT {_bound_name(table)} CHECK ({table.height} < {new}) NOT VALID
                """
            )
        is_valid = False
    if not is_valid:
        await connection.execute(
            f"ALTER TABLE {name} VALIDATE CONSTRAINT {_bound_name(table)}", timeout=_STEP_SECONDS
        )


async def lift_reached_bounds(connection: Connection, last: int) -> None:
    """Remove the bounds of tables under conversion that a block `last` would violate."""
    for table in TABLES.values():
        upper, _ = await _upper_bound(connection, table)
        if upper is not None and upper <= last and not await is_partitioned(connection, table.name):
            await connection.execute(
                f"ALTER TABLE {table.name} DROP CONSTRAINT {_bound_name(table)}"
            )


async def swap(connection: Connection, name: str) -> None:
    """Put a partitioned table in the place of the table, whose key and bound are prepared.

    Locks the table for milliseconds, however many rows it has. Raises
    asyncpg.LockNotAvailableError if the table stays locked by others.
    """
    table = TABLES[name]
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        await connection.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
        if await is_partitioned(connection, name):
            return
        upper, is_valid = await _upper_bound(connection, table)
        assert upper is not None, f"{name} has no bound"
        assert is_valid, f"the bound of {name} is not verified"
        await _put_in_place(connection, table, upper)


async def create_parent(connection: Connection, name: str, like: str, schema: str) -> None:
    """Create the partitioned table `name` in a schema, with its indexes and no partition yet.

    `like` is a table with the same columns and checks, in either layout.
    """
    table = TABLES[name]
    parent = f"{schema}.{name}"
    await connection.execute(
        f"""
        CREATE TABLE {parent} (LIKE {like} INCLUDING COMMENTS INCLUDING CONSTRAINTS
                               INCLUDING DEFAULTS INCLUDING STATISTICS INCLUDING STORAGE)
        PARTITION BY RANGE ({table.height})
        """
    )
    await connection.execute(
        f"""
        ALTER TABLE {parent}
          DROP CONSTRAINT IF EXISTS {_bound_name(table)},
          ADD CONSTRAINT {name}_pkey PRIMARY KEY ({table.key})
        """
    )
    for index, columns in table.indexes.items():
        await connection.execute(f"CREATE INDEX {index} ON {parent} ({columns})")


async def dependent_views(
    connection: Connection, relations: Sequence[str]
) -> list[tuple[str, str]]:
    """The views that read tables, with their definitions as the search path spells them.

    A view follows a table that is renamed or moved. `CREATE OR REPLACE VIEW` with the definition,
    read before that, lets the view read the table that has taken the name, and keeps privileges.
    """
    rows = await connection.fetch(
        """
        SELECT DISTINCT view.oid, view.oid::regclass::text AS name,
               pg_get_viewdef(view.oid) AS definition
          FROM unnest($1::text[]) AS relation
          JOIN pg_depend d ON d.refobjid = relation::regclass
                          AND d.refclassid = 'pg_class'::regclass
                          AND d.classid = 'pg_rewrite'::regclass
          JOIN pg_rewrite rule ON rule.oid = d.objid
          JOIN pg_class view ON view.oid = rule.ev_class AND view.relkind = 'v'
         ORDER BY view.oid
        """,
        list(relations),
    )
    return [(row["name"], row["definition"].rstrip("; \n")) for row in rows]


async def grants(connection: Connection, relation: str) -> list[str]:
    """Statements with a `%s` for a table, which give it the owner and the privileges of another."""
    rows = await connection.fetch(
        """
        SELECT format('ALTER TABLE %%s OWNER TO %I', pg_get_userbyid(relowner))
          FROM pg_class
         WHERE oid = $1::text::regclass
         UNION ALL
        SELECT format('GRANT %s ON %%s TO %s%s', privilege_type,
                      CASE WHEN grantee = 0 THEN 'PUBLIC'
                           ELSE quote_ident(pg_get_userbyid(grantee)) END,
                      CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
          FROM pg_class, aclexplode(relacl)
         WHERE oid = $1::text::regclass AND grantee <> relowner
        """,
        relation,
    )
    return [row[0] for row in rows]


async def _put_in_place(connection: Connection, table: PartitionedTable, upper: int) -> None:
    name, first = table.name, f"{table.name}_from_0"
    schema = await connection.fetchval(
        "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass($1)", name
    )
    views = await dependent_views(connection, [name])
    rights = await grants(connection, name)
    old_keys = await connection.fetch(
        """
        SELECT quote_ident(conname) AS name
          FROM pg_constraint
         WHERE conrelid = to_regclass($1) AND contype IN ('p', 'u')
        """,
        name,
    )
    await connection.execute(f"ALTER TABLE {name} RENAME TO {first}")
    for key in old_keys:
        await connection.execute(f"ALTER TABLE {first} DROP CONSTRAINT {key['name']}")
    await connection.execute(
        f"ALTER TABLE {first} "
        f"ADD CONSTRAINT {first}_pkey PRIMARY KEY USING INDEX {_key_index(table)}"
    )
    for index in table.dropped:
        await connection.execute(f"DROP INDEX {index}")
    for index in table.indexes:
        await connection.execute(f"ALTER INDEX {index} RENAME TO {first}{index[len(name) :]}")
    await create_parent(connection, name, first, schema)
    for right in rights:
        await connection.execute(right % f"{schema}.{name}")
    await connection.execute(
        f"ALTER TABLE {name} ATTACH PARTITION {first} FOR VALUES FROM (MINVALUE) TO ({upper})"
    )
    await connection.execute(f"ALTER TABLE {first} DROP CONSTRAINT IF EXISTS {_bound_name(table)}")
    for view, definition in views:
        await connection.execute(f"CREATE OR REPLACE VIEW {view} AS {definition}")


async def _upper_bound(connection: Connection, table: PartitionedTable) -> tuple[int | None, bool]:
    """The height that all rows are below by a CHECK, and whether PostgreSQL has verified it."""
    row = await connection.fetchrow(
        """
        SELECT substring(pg_get_constraintdef(oid) FROM '< ''?([0-9]+)')::bigint AS upper,
               convalidated
          FROM pg_constraint
         WHERE conrelid = to_regclass($1) AND conname = $2
        """,
        table.name,
        _bound_name(table),
    )
    return (None, False) if row is None else (row[0], row[1])


async def _reached(connection: Connection, table: PartitionedTable) -> int:
    """The highest block of the table, of the cursor and of the head."""
    reached: int = await connection.fetchval(
        f"""
        SELECT greatest((SELECT max({table.height}) FROM {table.name}),
                        (SELECT max(greatest(cursor_number, head_number)) FROM chains), 0)
        """  # noqa: S608
    )
    return reached


def _needed_indexes(table: PartitionedTable) -> dict[str, tuple[str, str]]:
    """The kind and the columns of each index that the table must have to be a partition."""
    others = {index: ("INDEX", columns) for index, columns in table.indexes.items()}
    return {_key_index(table): ("UNIQUE INDEX", table.key), **others}


def _key_index(table: PartitionedTable) -> str:
    return f"{table.name}_by_height"


def _bound_name(table: PartitionedTable) -> str:
    return f"{table.name}_bound"
