"""Commits blocks: their facts, what is derived from them, and the cursor, all or nothing.

With a fork the blocks above it are undone in the same database transaction, so that no reader sees
a height or a balance in between. Every write is fenced by the epoch of the follower's term, and
raises LaneLost once that is over.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import structlog

from ltzd import telemetry
from ltzd.indexer.contracts import FactBatch, IndexedContract
from ltzd.indexer.reading import BlockRange
from ltzd.indexer.slices import slices
from ltzd.rules.indexer.contract_facts import TokenTransferred
from ltzd.rules.indexer.mint_facts import RewardMinted
from ltzd.store import wakeups
from ltzd.store.database import Connection, Pool, transaction
from ltzd.store.indexer import chains, undo
from ltzd.store.indexer.chains import Cursor
from ltzd.store.wakeups import BLOCKS, WakeupHub
from ltzd.values import Address, Hash32

log = structlog.get_logger()

_FACTS_PER_INSERT = 500
"""The most facts of one `insert`, for which other tasks of this process wait."""


class BlockCommits:
    """Writes blocks to the live index, or to the fresh tables of a rebuild (`is_rebuild`)."""

    def __init__(
        self,
        pool: Pool,
        chain_id: int,
        contracts: Sequence[IndexedContract],
        hub: WakeupHub,
        *,
        is_rebuild: bool,
    ) -> None:
        self._pool = pool
        self._chain_id = chain_id
        self._contracts = contracts
        self._wakeups = hub
        self._is_rebuild = is_rebuild

    async def write(
        self,
        epoch: int,
        cursor: Cursor,
        block_range: BlockRange,
        head_number: int,
        fork: tuple[int, Hash32] | None = None,
    ) -> Cursor:
        """Return the new cursor. With `fork` the blocks above it are undone first."""
        counts = block_range.fact_counts()
        unmatched_mints = 0
        with (
            telemetry.timed(telemetry.COMMIT_SECONDS),
            telemetry.timed(telemetry.COMMIT_TO_INVALIDATED_SECONDS)
            if counts[TokenTransferred.kind]
            else nullcontext(),
        ):
            async with transaction(self._pool) as connection:
                if fork is not None:
                    cursor = await self._undo(connection, epoch, cursor, fork, head_number)
                await chains.move_cursor(
                    connection, self._chain_id, epoch, cursor.hash, block_range.last, head_number
                )
                await chains.insert_blocks(connection, block_range.blocks)
                unmatched_mints = await _insert_facts(connection, block_range)
                await wakeups.notify(connection, BLOCKS)
        self._wakeups.notify(BLOCKS)
        telemetry.BLOCKS.inc(block_range.last[0] - cursor.number)
        for kind, count in counts.items():
            telemetry.FACTS.labels(kind).inc(count)
        telemetry.REWARDS_MINTED.inc(counts[RewardMinted.kind] - unmatched_mints)
        if unmatched_mints and not self._is_rebuild:
            telemetry.FOREIGN_MINTS.inc(unmatched_mints)
            log.error("mints.foreign", blocks_to=block_range.last[0], count=unmatched_mints)
        return Cursor(*block_range.last, cursor.final_number)

    async def undo(
        self, epoch: int, cursor: Cursor, fork: tuple[int, Hash32], head_number: int
    ) -> Cursor:
        """Undo the blocks above the fork, without new ones; return the cursor at the fork."""
        async with transaction(self._pool) as connection:
            cursor = await self._undo(connection, epoch, cursor, fork, head_number)
            await wakeups.notify(connection, BLOCKS)
        self._wakeups.notify(BLOCKS)
        return cursor

    async def _undo(
        self,
        connection: Connection,
        epoch: int,
        cursor: Cursor,
        fork: tuple[int, Hash32],
        head_number: int,
    ) -> Cursor:
        # First the cursor's lock: its row is the lock of everything that is derived from facts. It
        # moves last, because it lowers the final height, which the undo still compares.
        await chains.lock_cursor(connection, self._chain_id, epoch)
        undos = [contract.undo for contract in self._contracts]
        await undo.undo_above(connection, fork[0], undos)
        await chains.move_cursor(connection, self._chain_id, epoch, cursor.hash, fork, head_number)
        return Cursor(*fork, min(cursor.final_number, fork[0]))


async def _insert_facts(connection: Connection, block_range: BlockRange) -> int:
    """Return how many of the range's mints belong to no reward."""
    unmatched_mints = 0
    for contract, batches in _by_contract(block_range.batches):
        assert contract.bulk is not None
        await contract.bulk.insert(connection, batches)
    for contract, facts in block_range.facts:
        for batch in slices(facts, _FACTS_PER_INSERT):
            unmatched_mints += await contract.insert(connection, batch) or 0
    return unmatched_mints


def _by_contract(
    batches: Sequence[tuple[IndexedContract, FactBatch]],
) -> list[tuple[IndexedContract, list[FactBatch]]]:
    grouped: dict[Address, tuple[IndexedContract, list[FactBatch]]] = {}
    for contract, batch in batches:
        grouped.setdefault(contract.address, (contract, []))[1].append(batch)
    return list(grouped.values())
