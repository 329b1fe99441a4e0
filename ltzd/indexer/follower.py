"""Follows one chain into the store: backfill, head, reorgs.

One process holds the chain's lock. Blocks, facts, derived rows and the cursor commit together, so
that after a kill the cursor matches the facts. A reorg is undone in one database transaction; then
the new branch is followed like any other blocks.
"""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext

import structlog

from ltzd import telemetry
from ltzd.chain.node.node import Header, Node
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import Broken, LaneLost, NodeUnavailable, Unavailable
from ltzd.indexer.contracts import IndexedContract
from ltzd.indexer.policy import IndexerPolicy
from ltzd.indexer.reading import BlockRange, read_head, read_range
from ltzd.indexer.slices import slices
from ltzd.rules.indexer.contract_facts import TokenTransferred
from ltzd.rules.indexer.mint_facts import RewardMinted
from ltzd.rules.indexer.reorgs import CursorVerdict, HeadObservation, compare, fork_point
from ltzd.store import wakeups
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains, undo
from ltzd.store.indexer.chains import ChainIdentity, Cursor
from ltzd.store.operator import locks
from ltzd.store.operator.locks import LockTerm
from ltzd.store.wakeups import BLOCKS, WakeupHub
from ltzd.values import Hash32

log = structlog.get_logger()

_FACTS_PER_INSERT = 500
"""Facts that one call of a contract's `insert` writes: other tasks of the process wait for it."""


class Follower:
    """Moves the cursor of one chain. `is_serving` is true while this process holds the lock."""

    def __init__(
        self,
        pool: Pool,
        database_url: str,
        node: Node,
        chain: ChainIdentity,
        contracts: Sequence[IndexedContract],
        wakeups: WakeupHub,
        policy: IndexerPolicy,
        clock: Clock = loop_time,
    ) -> None:
        self._clock = clock
        self._pool = pool
        self._database_url = database_url
        self._node = node
        self._chain = chain
        self._contracts = contracts
        self._wakeups = wakeups
        self._policy = policy
        self._epoch = 0
        self._head_short_since: float | None = None
        """When the head was first seen below the cursor; None if it is not."""
        self._node_has_finality = False
        self.is_serving = False

    async def run(self) -> None:
        """Follows the chain whenever the lock is free, until cancelled.

        Raises Broken on a reorg below finality.
        """
        while True:
            try:
                name = f"ltzd indexer {self._chain.chain_id}"
                async with locks.hold_lock(
                    self._database_url, name, self._policy.lock_retry_seconds
                ) as term:
                    await self._serve(term)
            except Unavailable as error:
                log.warning("indexer.term_over", reason=error.message)
            finally:
                self.is_serving = False
            await asyncio.sleep(self._policy.term_pause_seconds)

    async def _serve(self, term: LockTerm) -> None:
        await self.begin_term()
        self.is_serving = True
        log.info("indexer.serving", epoch=self._epoch)
        while not term.lost.is_set():
            if not await self.step():
                await asyncio.sleep(self._policy.poll_seconds)
        raise LaneLost("The connection that held the chain's lock is gone")

    async def begin_term(self) -> None:
        """Begins a term by raising the epoch, which fences off the holders of earlier terms.

        Rebuilds the index from its first block if any block was indexed without all of the
        contracts.
        """
        chain_id = self._chain.chain_id
        addresses = [contract.address for contract in self._contracts]
        async with transaction(self._pool) as connection:
            follows_all = await chains.has_all_facts_of(connection, chain_id, addresses)
            self._epoch = await chains.begin_term(connection, chain_id)
            await chains.record_contracts(connection, chain_id, addresses)
            cursor = await chains.cursor(connection, chain_id)
            base = None if follows_all else await chains.rewind(connection, chain_id)
            if base is not None:
                log.warning("indexer.reads_again", from_block=base, blocks=cursor.number - base)
                tables = [table for contract in self._contracts for table in contract.tables]
                await undo.delete_all(connection, cursor.final_number, tables)

    async def step(self) -> bool:
        """Compares the node's head with the cursor once and acts on it.

        Returns whether the next step can follow at once.
        """
        head, final = await self._node.head_and_final()
        async with session(self._pool) as connection:
            cursor = await chains.cursor(connection, self._chain.chain_id)
        verdict = await self._judge(cursor, head)
        self._measure(cursor, head)
        match verdict:
            case CursorVerdict.STALE:
                return False
            case CursorVerdict.REORGED:
                return await self._undo(cursor, head)
            case CursorVerdict.BEHIND:
                return await self._advance(cursor, head, final)
        await self._finalize(cursor, final)
        return False

    async def _judge(self, cursor: Cursor, head: Header) -> CursorVerdict:
        at_cursor: Hash32 | None = None
        if head.number == cursor.number:
            at_cursor = head.hash
        elif head.number == cursor.number + 1:
            at_cursor = head.parent_hash
        elif head.number > cursor.number:
            header = await self._node.block(cursor.number)
            at_cursor = header.hash if header else None
        now = self._clock()
        verdict = compare(
            cursor.number,
            cursor.hash,
            HeadObservation(head.number, at_cursor, now),
            self._head_short_since,
            self._policy.second_look_seconds,
        )
        if verdict is not CursorVerdict.STALE:
            self._head_short_since = None
        elif self._head_short_since is None:
            self._head_short_since = now
        return verdict

    async def _advance(self, cursor: Cursor, head: Header, final: int | None) -> bool:
        first = cursor.number + 1
        settled = min(
            final if final is not None else head.number - self._policy.final_depth, head.number
        )
        if settled - first >= self._policy.head_blocks:
            last = min(settled, first + self._policy.range_blocks - 1)
            block_range = await read_range(self._node, self._contracts, first, last)
        else:
            last = min(head.number, first + self._policy.head_blocks - 1)
            block_range = await read_head(self._node, self._contracts, first, last)
        if block_range is None:
            return False
        if block_range.parent_hash not in (None, cursor.hash):
            return await self._undo(cursor, head)
        await self._commit(cursor, block_range, head)
        await self._finalize(cursor, final)
        return block_range.last[0] < head.number

    async def _commit(self, cursor: Cursor, block_range: BlockRange, head: Header) -> None:
        counts = block_range.fact_counts()
        unmatched_mints = 0
        with (
            telemetry.timed(telemetry.COMMIT_SECONDS),
            telemetry.timed(telemetry.HEAD_TO_COMMIT_SECONDS),
            telemetry.timed(telemetry.COMMIT_TO_INVALIDATED_SECONDS)
            if counts[TokenTransferred.kind]
            else nullcontext(),
        ):
            async with transaction(self._pool) as connection:
                await chains.move_cursor(
                    connection,
                    self._chain.chain_id,
                    self._epoch,
                    cursor.hash,
                    block_range.last,
                    head.number,
                )
                await chains.insert_blocks(connection, block_range.blocks)
                for contract, facts in block_range.facts:
                    for batch in slices(facts, _FACTS_PER_INSERT):
                        unmatched_mints += await contract.insert(connection, batch) or 0
                await wakeups.notify(connection, BLOCKS)
        self._wakeups.notify(BLOCKS)
        telemetry.BLOCKS.inc(block_range.last[0] - cursor.number)
        for kind, count in counts.items():
            telemetry.FACTS.labels(kind).inc(count)
        telemetry.REWARDS_MINTED.inc(counts[RewardMinted.kind] - unmatched_mints)
        if unmatched_mints:
            log.error("mints.foreign", blocks_to=block_range.last[0], count=unmatched_mints)

    async def _finalize(self, cursor: Cursor, final: int | None) -> None:
        async with session(self._pool) as connection:
            # Once the node has reported finality, its tag counts even while it is missing: our own
            # rule might run ahead of it.
            self._node_has_finality = self._node_has_finality or final is not None
            if final is None and not self._node_has_finality:
                final = await chains.settled_number(
                    connection, self._policy.final_depth, self._policy.final_seconds
                )
            if final is not None and final > cursor.final_number:
                await chains.raise_finality(connection, self._chain.chain_id, self._epoch, final)

    async def _undo(self, cursor: Cursor, head: Header) -> bool:
        """Goes back to the fork; false if the node meanwhile holds all indexed blocks again."""
        fork, has_other_blocks = await self._fork_below(cursor)
        if fork[0] == cursor.number:
            return False
        if fork[0] < cursor.final_number and not self._policy.follows_deep_reorgs:
            if not has_other_blocks:
                raise NodeUnavailable("The node is behind the final block: it is syncing again")
            raise Broken(
                f"The chain was reorganised down to block {fork[0]}, below the final block "
                f"{cursor.final_number}: the node follows another chain"
            )
        async with transaction(self._pool) as connection:
            undos = [contract.undo for contract in self._contracts]
            undone = await undo.undo_above(connection, fork[0], undos)
            await chains.move_cursor(
                connection, self._chain.chain_id, self._epoch, cursor.hash, fork, head.number
            )
            await wakeups.notify(connection, BLOCKS)
        self._head_short_since = None
        self._wakeups.notify(BLOCKS)
        depth = cursor.number - fork[0]
        telemetry.REORGS.inc()
        telemetry.REORG_DEPTH.observe(depth)
        log.warning("indexer.reorg", fork=fork[0], depth=depth, blocks=undone)
        return True

    async def _fork_below(self, cursor: Cursor) -> tuple[tuple[int, Hash32], bool]:
        """The highest indexed block that the node still holds, searched one batch at a time.

        Also returns whether the node holds another block at the height of any block above it. If it
        does not, the node has lost blocks rather than switched branches.
        """
        below = cursor.number
        has_other_blocks = False
        while True:
            async with session(self._pool) as connection:
                indexed = await chains.newest_blocks(
                    connection, below, self._policy.fork_search_blocks
                )
            if not indexed and not has_other_blocks:
                raise NodeUnavailable(
                    "The node has none of the blocks of the database: it is syncing"
                )
            if not indexed:
                raise Broken("The node shares no block with the database: it follows another chain")
            headers = await self._node.headers([number for number, _ in indexed])
            on_node = {header.number: header.hash for header in headers if header is not None}
            has_other_blocks |= any(
                on_node.get(number, block_hash) != block_hash for number, block_hash in indexed
            )
            fork = fork_point(indexed, on_node)
            if fork is not None:
                return fork, has_other_blocks
            below = indexed[-1][0] - 1

    def _measure(self, cursor: Cursor, head: Header) -> None:
        telemetry.HEAD_BLOCK.set(head.number)
        telemetry.SYNC_BLOCK.set(cursor.number)
        telemetry.FINAL_BLOCK.set(cursor.final_number)
        telemetry.HEAD_LAG_BLOCKS.set(max(0, head.number - cursor.number))
