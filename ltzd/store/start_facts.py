"""Reads what a start must know of a database, before a schema exists and without changing it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from ltzd.store import server_facts
from ltzd.store.database import Connection
from ltzd.values import Address

_SAMPLE: Final = 1000
"""The sealed rows that are read from each table: a wrong key opens none of them."""


_SEALED: Final = {
    "brand_secrets": """
        SELECT DISTINCT key_id
          FROM (SELECT key_id FROM brand_secrets
                 WHERE key_id IS NOT NULL ORDER BY brand_id, name LIMIT $1) AS first
        """,
    "custodial_users": """
        SELECT DISTINCT key_id
          FROM ((SELECT key_id FROM custodial_users ORDER BY subject LIMIT $1)
                UNION ALL
                (SELECT key_id FROM custodial_users ORDER BY subject DESC LIMIT $1)) AS outer_rows
        """,
    "erasure_keys": "SELECT key_id FROM erasure_keys ORDER BY name LIMIT $1",
    "local_users": """
        SELECT DISTINCT key_id
          FROM (SELECT key_id FROM local_users ORDER BY subject LIMIT $1) AS first
        """,
}
"""The tables of sealed values; `local_users` is what schemas before 0015 call `custodial_users`."""

_NUMBERED: Final = {
    "transactions_id_seq": "SELECT max(id) FROM transactions",
    "relays_id_seq": "SELECT max(id) FROM relays",
    "rewards_position_seq": """
        SELECT max(position) FROM rewards WHERE transaction_id IS NULL AND failed_at IS NULL
        """,
    "transaction_requests_id_seq": "SELECT max(id) FROM transaction_requests",
    "pregeneration_requests_id_seq": "SELECT max(id) FROM pregeneration_requests",
    "rebuilds_id_seq": "SELECT max(id) FROM rebuilds",
    "books_acknowledgements_id_seq": "SELECT max(id) FROM books_acknowledgements",
    "brand_revisions": "SELECT max(revision) FROM brands",
}
"""The sequences of the schema, each with the highest number of its rows.

Among rewards those that wait for a mint count, since the oldest go first."""


class DatabaseFacts(msgspec.Struct, frozen=True):
    """`revision` is None for a database without a schema.

    `schema` is where tables are created; None if no schema of the search path exists.
    `owns_tables` says whether this user may change the tables of an older revision.
    """

    revision: str | None
    now: datetime
    user: str
    name: str
    schema: str | None
    may_create_tables: bool
    may_create_schemas: bool
    owns_tables: bool


class ServerIdentity(msgspec.Struct, frozen=True):
    """The facts that two ways to the same database have in common.

    `system` is the cluster's identifier, which its standbys share; None if the server does not tell
    it to this user. `was_promoted` says of a primary that tells its timeline that the primary has
    been a standby, or was restored.
    """

    system: str | None
    name: str
    user: str
    is_standby: bool
    was_promoted: bool
    takes_writes: bool

    def is_same_database(self, other: "ServerIdentity") -> bool:
        return (self.name, self.system) == (other.name, other.system)


async def server_identity(connection: Connection) -> ServerIdentity:
    row = await connection.fetchrow(
        """
        SELECT current_database()::text AS name, current_user::text AS user,
               pg_is_in_recovery() AS is_standby,
               NOT current_setting('transaction_read_only')::bool AS takes_writes
        """
    )
    timeline = await server_facts.timeline(connection)
    return ServerIdentity(
        system=await server_facts.system_identifier(connection),
        was_promoted=timeline is not None and timeline > 1,
        **row,
    )


async def read(connection: Connection) -> DatabaseFacts:
    row = await connection.fetchrow(
        """
        SELECT clock_timestamp() AS now,
               current_user::text AS user,
               current_database()::text AS name,
               current_schema()::text AS schema,
               coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)
                   AS may_create_tables,
               has_database_privilege(current_database(), 'CREATE') AS may_create_schemas,
               to_regclass('alembic_version') IS NOT NULL AS has_schema,
               NOT EXISTS (SELECT FROM pg_class
                            WHERE oid = to_regclass('alembic_version')
                              AND NOT pg_has_role(relowner, 'USAGE')) AS owns_tables
        """
    )
    facts = dict(row)
    revision = None
    if facts.pop("has_schema"):
        may_read = await connection.fetchval(
            "SELECT has_table_privilege('alembic_version', 'SELECT')"
        )
        if may_read:
            revision = await connection.fetchval("SELECT version_num FROM alembic_version")
    return DatabaseFacts(revision=revision, **facts)


async def hidden_tables(connection: Connection) -> str | None:
    """The sentence for tables of ltzd that the session's search path hides, or None.

    An administrator may set another path (ALTER ROLE … SET); new tables, empty ones, would be made
    there. The caller has found that the path leads to no schema of ltzd.
    """
    row = await connection.fetchrow(
        """
        SELECT n.nspname AS schema, current_setting('search_path') AS path,
               quote_ident(current_user) AS user, quote_ident(current_database()) AS name,
               quote_ident(n.nspname) AS quoted
          FROM pg_class c
          JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relname = 'alembic_version' AND NOT pg_table_is_visible(c.oid)
           AND EXISTS (SELECT FROM pg_class o
                        WHERE o.relnamespace = c.relnamespace AND o.relname = 'rewards')
         ORDER BY n.nspname
         LIMIT 1
        """
    )
    if row is None:
        return None
    return (
        f"ltzd's tables are in the schema {row['schema']}, which the search_path of its sessions "
        f"({row['path'] or 'empty'}) does not name: run ALTER ROLE {row['user']} IN DATABASE "
        f"{row['name']} SET search_path = {row['quoted']}; or correct the setting that hides them "
        "(\\drds in psql)."
    )


async def sealing_key_ids(connection: Connection) -> set[str]:
    """The ids of the master keys that sealed the first rows of each table of sealed values.

    A table that an older schema lacks is left out.
    """
    key_ids: set[str] = set()
    for table, query in _SEALED.items():
        if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table):
            rows = await connection.fetch(query, _SAMPLE)
            key_ids |= {row["key_id"] for row in rows}
    return key_ids


async def sequences_behind(connection: Connection) -> dict[str, int]:
    """The sequences that would give numbers of present rows again, with the highest such number.

    Needs the newest schema. Leaves out sequences that this user may not read.
    """
    behind = {}
    for sequence, query in _NUMBERED.items():
        if not await connection.fetchval(
            "SELECT has_sequence_privilege(to_regclass($1), 'SELECT')", sequence
        ):
            continue
        # The rows first, since other processes write meanwhile.
        newest = await connection.fetchval(query)
        last = await connection.fetchval("SELECT pg_sequence_last_value(to_regclass($1))", sequence)
        if newest is not None and newest > (last or 0):
            behind[sequence] = newest
    return behind


async def wallets_with_transactions(
    connection: Connection, wallets: Sequence[Address]
) -> set[Address]:
    """The wallets among these that have sent a transaction of this database; needs a schema."""
    rows = await connection.fetch(
        """
        SELECT named.wallet
          FROM unnest($1::bytea[]) AS named (wallet)
         WHERE EXISTS (SELECT
                         FROM transactions
                        WHERE transactions.chain_id = (SELECT chain_id FROM chains)
                          AND transactions.wallet = named.wallet)
        """,
        wallets,
    )
    return {Address(row["wallet"]) for row in rows}


async def retired_wallets(
    connection: Connection, wallets: Sequence[Address]
) -> dict[Address, datetime]:
    """The retired wallets among these, with the time of it; {} for a schema without their table."""
    if await connection.fetchval("SELECT to_regclass('operator_wallets') IS NULL"):
        return {}
    rows = await connection.fetch(
        """
        SELECT wallet, state_since
          FROM operator_wallets
         WHERE chain_id = (SELECT chain_id FROM chains)
           AND wallet = ANY ($1::bytea[])
           AND state = 'retired'
        """,
        wallets,
    )
    return {Address(wallet): since for wallet, since in rows}
