"""Follows one chain into the store: backfill, head, reorgs.

One process holds the chain's lock. Blocks, facts, derived rows and the cursor commit together, so a
kill leaves a cursor that is exactly as far as its facts. A reorg is undone in one database
transaction; then the new branch is followed like any other blocks.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Final, TypeVar

import structlog

from ltzd import telemetry
from ltzd.chain.node.node import Header, Node
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import Broken, LaneLost, NodeUnavailable, Unavailable
from ltzd.indexer.policy import Contracts, IndexerPolicy
from ltzd.indexer.reading import BlockRange, read_head, read_range
from ltzd.rules.indexer import contract_facts
from ltzd.rules.indexer.reorgs import Look, Verdict, fork_point, judge
from ltzd.store import wakeups
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains, escrow_facts, perk_facts, sale_facts
from ltzd.store.indexer import mint_facts as facts
from ltzd.store.indexer.chains import ChainIdentity, Cursor
from ltzd.store.operator import locks
from ltzd.store.operator.locks import LockTerm
from ltzd.store.wakeups import BLOCKS, WakeupHub
from ltzd.values import Hash32

log = structlog.get_logger()

Row = TypeVar("Row")

_PAUSE_SECONDS = 0.5
_ROWS_A_TURN = 500
_LOOK_BACK = 128
"""Blocks compared in one batch when the fork point is searched."""
_KINDS: Final[dict[type, str]] = {
    contract_facts.TokenTransferred: "perk_transfer",
    contract_facts.Claimed: "claim",
    contract_facts.ChargeRedeemed: "redemption",
    contract_facts.CollectionCreated: "collection",
    contract_facts.CollectionUpdated: "collection",
    contract_facts.CollectionBrandSet: "collection",
    contract_facts.ItemSet: "item",
    contract_facts.Purchased: "purchase",
    contract_facts.DealLocked: "deal",
    contract_facts.DealReleased: "deal",
    contract_facts.DealRefunded: "deal",
    contract_facts.DealSplit: "deal",
}
"""Kinds of facts, as the metrics have them, beside `transfer` and `mint`."""


class Follower:
    def __init__(
        self,
        pool: Pool,
        database_url: str,
        node: Node,
        chain: ChainIdentity,
        contracts: Contracts,
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
        self._short_since: float | None = None
        self._node_tells_finality = False
        self.is_serving = False

    async def run(self) -> None:
        """Follow, term after term, until cancelled. Raises Broken on a reorg below finality."""
        while True:
            try:
                name = f"ltzd indexer {self._chain.chain_id}"
                async with locks.hold_lock(self._database_url, name) as term:
                    await self._serve(term)
            except Unavailable as error:
                log.warning("indexer.term_over", reason=error.message)
            finally:
                self.is_serving = False
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _serve(self, term: LockTerm) -> None:
        await self._begin()
        self.is_serving = True
        log.info("indexer.serving", epoch=self._epoch)
        while not term.lost.is_set():
            if not await self.step():
                await asyncio.sleep(self._policy.poll_seconds)
        raise LaneLost("The connection that held the chain's lock is gone")

    async def _begin(self) -> None:
        """Count the epoch up; read again from the beginning what was read without our contracts."""
        chain_id, contracts = self._chain.chain_id, self._contracts.all()
        async with transaction(self._pool) as connection:
            follows_all = await chains.has_all_facts_of(connection, chain_id, contracts)
            self._epoch = await chains.begin_term(connection, chain_id)
            await chains.record_contracts(connection, chain_id, contracts)
            was = await chains.cursor(connection, chain_id)
            base = None if follows_all else await chains.rewind(connection, chain_id)
            if base is not None:
                log.warning("indexer.reads_again", from_block=base, blocks=was.number - base)
                await facts.delete_all(connection, was.final_number)

    async def step(self) -> bool:
        """One look and what follows from it; True when there may be more to do at once."""
        head, final = await self._node.head_and_final()
        async with session(self._pool) as connection:
            cursor = await chains.cursor(connection, self._chain.chain_id)
        verdict = await self._judge(cursor, head)
        self._measure(cursor, head)
        match verdict:
            case Verdict.STALE:
                return False
            case Verdict.REORGED:
                return await self._undo(cursor, head)
            case Verdict.BEHIND:
                return await self._advance(cursor, head, final)
        await self._finalize(cursor, final)
        return False

    async def _judge(self, cursor: Cursor, head: Header) -> Verdict:
        at_cursor: Hash32 | None = None
        if head.number == cursor.number:
            at_cursor = head.hash
        elif head.number == cursor.number + 1:
            at_cursor = head.parent_hash
        elif head.number > cursor.number:
            header = await self._node.block(cursor.number)
            at_cursor = header.hash if header else None
        now = self._clock()
        verdict = judge(
            cursor.number, cursor.hash, Look(head.number, at_cursor, now), self._short_since
        )
        if verdict is not Verdict.STALE:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        return verdict

    async def _advance(self, cursor: Cursor, head: Header, final: int | None) -> bool:
        first = cursor.number + 1
        settled = min(
            final if final is not None else head.number - self._policy.final_depth, head.number
        )
        if settled - first >= self._policy.head_blocks:
            last = min(settled, first + self._policy.range_blocks - 1)
            stretch = await read_range(self._node, self._contracts, first, last)
        else:
            last = min(head.number, first + self._policy.head_blocks - 1)
            stretch = await read_head(self._node, self._contracts, first, last)
        if stretch is None:
            return False
        if stretch.parent_hash not in (None, cursor.hash):
            return await self._undo(cursor, head)
        await self._commit(cursor, stretch, head)
        await self._finalize(cursor, final)
        return stretch.last[0] < head.number

    async def _commit(self, cursor: Cursor, stretch: BlockRange, head: Header) -> None:
        with (
            telemetry.timed(telemetry.COMMIT_SECONDS),
            telemetry.timed(telemetry.HEAD_TO_COMMIT_SECONDS),
            telemetry.timed(telemetry.COMMIT_TO_INVALIDATED_SECONDS)
            if stretch.moves_tokens
            else nullcontext(),
        ):
            async with transaction(self._pool) as connection:
                await chains.move_cursor(
                    connection,
                    self._chain.chain_id,
                    self._epoch,
                    cursor.hash,
                    stretch.last,
                    head.number,
                )
                await chains.insert_blocks(connection, stretch.blocks)
                for some in _turns(stretch.transfers):
                    await facts.insert_transfers(connection, some)
                ours = 0
                for minted in _turns(stretch.mints):
                    ours += await facts.insert_mints(connection, minted)
                for perks in _turns(stretch.perks):
                    await perk_facts.insert(connection, perks)
                for sales in _turns(stretch.sales):
                    await sale_facts.insert(connection, sales)
                for deals in _turns(stretch.deals):
                    await escrow_facts.insert(connection, deals)
                await wakeups.notify(connection, BLOCKS)
        self._wakeups.notify(BLOCKS)
        _count(stretch, stretch.last[0] - cursor.number, ours)

    async def _finalize(self, cursor: Cursor, final: int | None) -> None:
        async with session(self._pool) as connection:
            # A node that tells it mostly is in trouble now: our own rule might run ahead of it.
            self._node_tells_finality = self._node_tells_finality or final is not None
            if final is None and not self._node_tells_finality:
                final = await chains.settled_number(
                    connection, self._policy.final_depth, self._policy.final_seconds
                )
            if final is not None and final > cursor.final_number:
                await chains.raise_finality(connection, self._chain.chain_id, self._epoch, final)

    async def _undo(self, cursor: Cursor, head: Header) -> bool:
        """Go back to the fork; False when the node meanwhile holds all of our blocks again."""
        fork, is_contradicted = await self._fork_below(cursor)
        if fork[0] == cursor.number:
            return False
        if fork[0] < cursor.final_number and not self._policy.follows_deep_reorgs:
            if not is_contradicted:
                raise NodeUnavailable("The node has fallen behind the final block: it syncs anew")
            raise Broken(
                f"The chain was reorganised down to block {fork[0]}, below the final block "
                f"{cursor.final_number}: the node follows another chain"
            )
        async with transaction(self._pool) as connection:
            undone = await facts.undo_above(connection, fork[0])
            await chains.move_cursor(
                connection, self._chain.chain_id, self._epoch, cursor.hash, fork, head.number
            )
            await wakeups.notify(connection, BLOCKS)
        self._short_since = None
        self._wakeups.notify(BLOCKS)
        depth = cursor.number - fork[0]
        telemetry.REORGS.inc()
        telemetry.REORG_DEPTH.observe(depth)
        log.warning("indexer.reorg", fork=fork[0], depth=depth, blocks=undone)
        return True

    async def _fork_below(self, cursor: Cursor) -> tuple[tuple[int, Hash32], bool]:
        """Our highest block that the node still holds, searched one batch at a time.

        Also answers whether the node has another block in the place of one of ours above it.
        """
        below = cursor.number
        is_contradicted = False
        while True:
            async with session(self._pool) as connection:
                ours = await chains.newest_blocks(connection, below, _LOOK_BACK)
            if not ours and not is_contradicted:
                raise NodeUnavailable("The node has none of the blocks of the database: it syncs")
            if not ours:
                raise Broken("The node shares no block with the database: it follows another chain")
            headers = await self._node.headers([number for number, _ in ours])
            theirs = {header.number: header.hash for header in headers if header is not None}
            is_contradicted |= any(theirs.get(number, hash_) != hash_ for number, hash_ in ours)
            fork = fork_point(ours, theirs)
            if fork is not None:
                return fork, is_contradicted
            below = ours[-1][0] - 1

    def _measure(self, cursor: Cursor, head: Header) -> None:
        telemetry.HEAD_BLOCK.set(head.number)
        telemetry.SYNC_BLOCK.set(cursor.number)
        telemetry.FINAL_BLOCK.set(cursor.final_number)
        telemetry.HEAD_LAG_BLOCKS.set(max(0, head.number - cursor.number))


def _count(stretch: BlockRange, blocks: int, ours: int) -> None:
    """`ours` are the mints that were of our rewards."""
    telemetry.BLOCKS.inc(blocks)
    telemetry.FACTS.labels("transfer").inc(len(stretch.transfers))
    telemetry.FACTS.labels("mint").inc(len(stretch.mints))
    others = (stretch.perks, stretch.sales, stretch.deals)
    kinds = Counter(_KINDS[type(fact)] for some in others for fact in some)
    for kind, count in kinds.items():
        telemetry.FACTS.labels(kind).inc(count)
    telemetry.REWARDS_MINTED.inc(ours)
    if ours < len(stretch.mints):
        log.error("mints.foreign", blocks_to=stretch.last[0], count=len(stretch.mints) - ours)


def _turns(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Rows in portions that hold up the requests of this process only for moments."""
    for start in range(0, len(rows), _ROWS_A_TURN):
        yield rows[start : start + _ROWS_A_TURN]
