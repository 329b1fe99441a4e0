"""Corrects facts of indexed blocks, anywhere in the history, in one database transaction.

`apply` removes and inserts facts of all contracts, and rebuilds what is derived from them:
balances, the mints recorded on rewards with their webhooks and leaderboards, tokens, collections,
items, deals, and the payments of site redemptions. `apply` locks the chain's row, so it may run
beside the indexer, in its process or in another one. The cursor stays where it is.

The caller makes sure that the nodes are right (`indexer/repair.py`).
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ltzd.errors import IndexMoved
from ltzd.store import wakeups
from ltzd.store.database import Connection
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import BlockRow
from ltzd.store.indexer.fact_rows import Corrections, TableCorrection
from ltzd.store.indexer.impossible import refused_as_impossible
from ltzd.store.indexer.rebuild import orders
from ltzd.store.site_plugin import redemption_payments
from ltzd.store.wakeups import BLOCKS
from ltzd.values import Hash32

CorrectContract = Callable[[Connection, Corrections], Awaitable[None]]
"""Corrects one contract's facts, and what is derived from them."""


class IndexCorrection(msgspec.Struct, frozen=True):
    """Corrections that belong together.

    `blocks` are the blocks of all facts that are inserted; `contracts` holds the corrections of
    each contract, with the function that carries them out. `open_heights` are those of the blocks
    that were not final when they were compared: a reorg may undo them before they are corrected.
    """

    blocks: Sequence[BlockRow]
    contracts: Sequence[tuple[CorrectContract, Corrections]]
    open_heights: frozenset[int] = frozenset()

    def heights(self) -> set[int]:
        """The heights of the facts that are removed, inserted or replaced."""
        return {
            number
            for _, corrections in self.contracts
            for table in corrections.values()
            for number in (
                *(key[0] for key in table.remove),
                *(fact.position.block_number for fact in table.insert),
            )
        }

    def count(self) -> int:
        """The number of facts that are removed, inserted or replaced."""
        return sum(
            len({*table.remove, *(fact.position.order for fact in table.insert)})
            for _, corrections in self.contracts
            for table in corrections.values()
        )


NO_CORRECTION = IndexCorrection((), ())


def merge(corrections: Sequence[IndexCorrection]) -> IndexCorrection:
    """Several corrections as one. Of those of the same block the last ones count."""
    blocks: list[BlockRow] = []
    tables: dict[CorrectContract, dict[str, TableCorrection]] = {}
    open_heights: set[int] = set()
    later: set[int] = set()
    for correction in reversed(corrections):
        blocks += [block for block in correction.blocks if block.number not in later]
        open_heights |= correction.open_heights - later
        for correct_contract, of_contract in correction.contracts:
            merged = tables.setdefault(correct_contract, {})
            for name, table in of_contract.items():
                before = merged.get(name, TableCorrection())
                remove = [key for key in table.remove if key[0] not in later]
                insert = [fact for fact in table.insert if fact.position.block_number not in later]
                merged[name] = TableCorrection([*before.remove, *remove], [*before.insert, *insert])
        later |= correction.heights()
    return IndexCorrection(blocks, list(tables.items()), frozenset(open_heights))


async def is_indexed_still(connection: Connection, correction: IndexCorrection) -> bool:
    """Whether the blocks that were not final when they were compared are still indexed."""
    indexed: dict[int, Hash32] = await chains.kept_blocks(connection, list(correction.open_heights))
    return all(
        indexed.get(block.number) == block.hash
        for block in correction.blocks
        if block.number in correction.open_heights
    )


async def apply(
    connection: Connection, chain_id: int, correction: IndexCorrection, *, epoch: int | None = None
) -> None:
    """Carry out corrections in the caller's database transaction. Safe to repeat.

    `epoch` is the term's, for a caller who holds the indexer's lease: LaneLost is raised if it is
    over. Raises IndexMoved if a block is not indexed any more, and ImpossibleFact if the corrected
    facts cannot be.
    """
    cursor = await chains.lock_cursor(connection, chain_id, epoch)
    await _replace_blocks(connection, cursor, correction)
    removed = [
        (block_hash, log_index)
        for _, corrections in correction.contracts
        for table in corrections.values()
        for _, block_hash, log_index in table.remove
    ]
    with refused_as_impossible():
        for correct_contract, corrections in correction.contracts:
            await correct_contract(connection, corrections)
    await redemption_payments.mark_lost_of(connection, removed)
    heights = correction.heights()
    if heights:
        await orders.restart_if_kept(connection, min(heights))
    await wakeups.notify(connection, BLOCKS)


async def _replace_blocks(
    connection: Connection, cursor: chains.Cursor, correction: IndexCorrection
) -> None:
    """Insert the blocks that are not kept.

    Blocks that are not final, or were not when they were compared, must be indexed as they are. A
    final block of another hash is replaced: its facts are among those that are removed.
    """
    indexed: dict[int, Hash32] = await chains.kept_blocks(
        connection, [block.number for block in correction.blocks]
    )
    new = [block for block in correction.blocks if indexed.get(block.number) != block.hash]
    first_open = min(cursor.final_number + 1, cursor.number)
    for block in new:
        if block.number >= first_open or block.number in correction.open_heights:
            raise IndexMoved(f"Block {block.number} is not indexed any more")
    await chains.delete_blocks(connection, [block.number for block in new])
    await chains.insert_blocks(connection, new)
