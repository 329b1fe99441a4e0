"""Indexes of tables that may be large, built while the tables are written.

`CREATE INDEX` in a revision would keep writers out until the whole table is read (decision 0007).
So a revision calls `create_on_new`, and enters a table with rows in `background_migrations`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

Connection = Any
"""An asyncpg connection."""

_STEP_SECONDS: Final = 7 * 86_400.0
"""A statement that reads a whole table may take this time."""


class Index(msgspec.Struct, frozen=True):
    """`definition` is what follows the table's name."""

    name: str
    definition: str


ADDED: Final[Mapping[str, Sequence[Index]]] = {
    "transactions": (
        # Thousands of mined transactions may wait for finality, in a few dozen blocks. A lane looks
        # at the blocks alone with each new head, and at their transactions once a block is final,
        # or is not indexed.
        Index("transactions_mined", "(wallet, block_number, block_hash) WHERE state = 'mined'"),
        # A few among millions. A term asks for a wallet's voided transactions, the treasury every
        # ten seconds for displaced ones, and a person for any.
        Index(
            "transactions_unsuccessful",
            "(wallet, state, nonce) "
            "WHERE state IN ('reverted', 'displaced', 'cancelled', 'voided')",
        ),
    ),
    "site_redemptions": (
        # A member's pending redemptions are found whatever wallet the member has now: a link or a
        # proof may have given the member another one since.
        Index(
            "site_redemptions_pending",
            "(brand_id, host, site_user_id, perk_id) "
            "WHERE state = 'open' OR payment_lost_at IS NOT NULL",
        ),
    ),
}
"""By table, the indexes that revisions 0032, 0034 and 0035 have added."""

REPLACED: Final[Mapping[str, tuple[Index, str]]] = {
    # Webhooks of one state are found however many others a brand has: the pending ones of a dead
    # endpoint are as many as all that was delivered, the exhausted ones a few among millions.
    "webhooks": (
        Index("webhooks_by_state", "(brand_id, state, created_at)"),
        "webhooks_by_brand",
    ),
}
"""By table, the index that revision 0036 has put in the place of another one, and that one."""


async def create_on_new(connection: Connection, table: str) -> bool:
    """Create the indexes of a table without rows, in the caller's transaction.

    Returns False for other tables.
    """
    if await _has_rows(connection, table):
        return False
    for index in ADDED[table]:
        await _create(connection, table, index)
    return True


async def replace_on_new(connection: Connection, table: str) -> bool:
    """As `create_on_new`, for the index that takes the place of another one."""
    if await _has_rows(connection, table):
        return False
    index, former = REPLACED[table]
    await _create(connection, table, index)
    await connection.execute(f"DROP INDEX IF EXISTS {former}")
    return True


async def build_added(connection: Connection, table: str) -> None:
    """Build the indexes that revisions have added to the table, outside of a transaction."""
    for index in ADDED[table]:
        await build(connection, "INDEX", index.name, f"{table} {index.definition}")


async def replace(connection: Connection, table: str) -> None:
    """Build the index that takes the place of another one, and drop that one, outside of a
    transaction."""
    index, former = REPLACED[table]
    await build(connection, "INDEX", index.name, f"{table} {index.definition}")
    await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {former}", timeout=_STEP_SECONDS)


async def build(connection: Connection, kind: str, name: str, on: str) -> None:
    """Build an index without blocking readers or writers, outside of a transaction.

    Does nothing if the index is there, and begins anew after an interrupted attempt. `kind` is
    INDEX or UNIQUE INDEX; `on` is the table with the index's definition.
    """
    is_valid = await connection.fetchval(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", name
    )
    if is_valid:
        return
    if is_valid is not None:  # An interrupted attempt has left it.
        await connection.execute(f"DROP INDEX CONCURRENTLY {name}", timeout=_STEP_SECONDS)
    await connection.execute(f"CREATE {kind} CONCURRENTLY {name} ON {on}", timeout=_STEP_SECONDS)


async def _has_rows(connection: Connection, table: str) -> bool:
    has_rows: bool = await connection.fetchval(f"SELECT EXISTS (SELECT FROM {table})")  # noqa: S608
    return has_rows


async def _create(connection: Connection, table: str, index: Index) -> None:
    await connection.execute(
        f"CREATE INDEX IF NOT EXISTS {index.name} ON {table} {index.definition}"
    )
