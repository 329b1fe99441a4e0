"""Undoing and rebuilding the index: the contracts' facts, the blocks, and what both entail.

Each contract's facts are undone by its own module; the indexer passes these functions and tables
in. Everything happens in the caller's database transaction, which also moves the cursor.
"""

from collections.abc import Awaitable, Callable, Iterable

from ltzd.store.database import Connection
from ltzd.store.indexer import mint_facts
from ltzd.store.operator import transactions
from ltzd.store.site_plugin import redemption_payments

Undo = Callable[[Connection, int], Awaitable[None]]
"""Deletes one contract's facts above a block, and what is derived from them."""

_DELETE_SECONDS = 3600.0


async def undo_above(connection: Connection, fork: int, undos: Iterable[Undo]) -> int:
    """Undoes everything above block `fork`; returns how many blocks were undone.

    A reorg below finality (dev chains) also moves the transactions whose block was final.
    """
    for undo in undos:
        await undo(connection, fork)
    await redemption_payments.mark_lost_above(connection, fork)
    await transactions.undo_finality_above(connection, fork)
    blocks = await connection.fetch("DELETE FROM blocks WHERE number > $1 RETURNING number", fork)
    return len(blocks)


async def delete_all(connection: Connection, final_number: int, tables: Iterable[str]) -> None:
    """Empties the contracts' tables and deletes every block but the first.

    Rewards keep final mints, and count. Other mints are cleared and indexed again: a reorg
    meanwhile would leave no fact to undo. Redemptions keep final payments likewise.
    """
    await mint_facts.undo_mints_above(connection, final_number)
    for table in tables:
        # Not TRUNCATE: it needs a privilege that the daemon's role may lack.
        await connection.execute(f"DELETE FROM {table}", timeout=_DELETE_SECONDS)  # noqa: S608
    await connection.execute(
        "DELETE FROM blocks WHERE number > (SELECT min(number) FROM blocks)",
        timeout=_DELETE_SECONDS,
    )
    await redemption_payments.mark_lost_above(connection, final_number)
