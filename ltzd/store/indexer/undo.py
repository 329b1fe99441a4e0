"""Undoing blocks: the contracts' facts, the blocks, and what both entail.

Each contract's facts are undone by its own module; the indexer passes these functions in.
Everything happens in the caller's database transaction, which also moves the cursor.
"""

from collections.abc import Awaitable, Callable, Iterable

from ltzd.store.database import Connection
from ltzd.store.operator import settlement
from ltzd.store.site_plugin import redemption_payments

Undo = Callable[[Connection, int], Awaitable[None]]
"""Deletes one contract's facts above a block, and what is derived from them."""


async def undo_above(connection: Connection, fork: int, undos: Iterable[Undo]) -> int:
    """Undo everything above block `fork`; returns how many blocks were undone.

    A reorg below finality (dev chains) also moves the transactions whose block was final.
    """
    for undo in undos:
        await undo(connection, fork)
    await redemption_payments.mark_lost_above(connection, fork)
    await settlement.undo_finality_above(connection, fork)
    blocks = await connection.fetch("DELETE FROM blocks WHERE number > $1 RETURNING number", fork)
    return len(blocks)
