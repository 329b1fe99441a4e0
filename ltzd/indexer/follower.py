"""Follows one chain into the store: backfill, head, reorgs.

One process holds the chain's lease. Blocks, facts, derived rows and the cursor commit together, so
that after a kill the cursor matches the facts. A reorg is undone in the database transaction that
writes the new branch, so that no reader sees a height or balance in between.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import NoReturn

import structlog
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
from ltzd.chain.node.views import MalformedAnswers
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.concurrency.outages import Outage
from ltzd.concurrency.own_task import in_own_task
from ltzd.errors import Broken, ImpossibleFact, IndexStopped, NodeUnavailable, Unavailable
from ltzd.indexer.audit import Audit
from ltzd.indexer.backfill.progress import BackfillProgress
from ltzd.indexer.backfill.ranges import BackfillRanges
from ltzd.indexer.backfill.reader import RangeReader
from ltzd.indexer.branches import Branches, Undo
from ltzd.indexer.commits import BlockCommits
from ltzd.indexer.contracts import IndexedContract
from ltzd.indexer.finality import FinalityTracker
from ltzd.indexer.head_poll import HeadPoll, poll_head
from ltzd.indexer.heads import HeadAnnouncements
from ltzd.indexer.inconsistent_answers import InconsistentAnswers
from ltzd.indexer.log_checks import LOGS, LogChecks
from ltzd.indexer.log_witnesses import LogWitnesses
from ltzd.indexer.new_branch import BranchReader
from ltzd.indexer.next_poll import NextPoll
from ltzd.indexer.policy import IndexerPolicy
from ltzd.indexer.reading import BlockRange, BlockReader
from ltzd.indexer.repair import IndexRepair
from ltzd.indexer.self_repair import SelfRepair
from ltzd.indexer.stopping import IndexStop, reason_of
from ltzd.rules.indexer.reorgs import CursorVerdict
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import ChainIdentity, Cursor
from ltzd.store.indexer.impossible import refused_as_impossible
from ltzd.store.indexer.rebuild import orders
from ltzd.store.operator.leases import Leases, indexer_lease
from ltzd.store.wakeups import WakeupHub
from ltzd.values import Hash32

log = structlog.get_logger()

_SAME_FAILURE_SECONDS = 60.0
"""A node that fails again within this time is not named in the log again."""
_LONGEST_PAUSE_SECONDS = 2.0
"""The longest pause before a node is asked again while none answers."""
_OTHER_CONTRACTS = (
    "The index does not hold the facts of all contracts of the settings, and is being rebuilt"
)


class Follower:
    """Moves the cursor of one chain. `is_serving` is true while this process holds the lease."""

    def __init__(
        self,
        pool: Pool,
        leases: Leases,
        node: Node,
        chain: ChainIdentity,
        contracts: Sequence[IndexedContract],
        wakeups: WakeupHub,
        policy: IndexerPolicy,
        clock: Clock = loop_time,
    ) -> None:
        self._clock = clock
        self._pool = pool
        self._leases = leases
        self._node = node
        self._chain = chain
        self._contracts = contracts
        self._policy = policy
        self._next_poll = NextPoll(policy)
        self._commits = BlockCommits(
            pool, chain.chain_id, contracts, wakeups, is_rebuild=policy.is_rebuild
        )
        self._branches = Branches(pool, chain.genesis_hash, policy, clock)
        self._finality = FinalityTracker(pool, policy, clock)
        checks = LogChecks(policy.second_check_seconds, clock)
        self._witnesses = witnesses = LogWitnesses(policy.second_check_seconds, clock)
        self._reader = BlockReader(contracts, checks, witnesses)
        self._branch_reader = BranchReader(self._reader, policy, clock)
        ranges = RangeReader(contracts, checks, witnesses)
        self._backfill = BackfillRanges(ranges, policy.backfill, policy.range_blocks, clock)
        self._progress = BackfillProgress(clock)
        self._stop = IndexStop(pool, chain.chain_id, wakeups)
        repair = IndexRepair(pool, chain.chain_id, contracts, policy)
        self._self_repair = SelfRepair(pool, chain.chain_id, repair, policy, clock)
        audit_repair = IndexRepair(pool, chain.chain_id, contracts, policy)
        self._audit = Audit(
            pool, chain.chain_id, node, contracts, audit_repair, policy.audit, clock
        )
        self._lacks_contracts = False
        """Whether the index stands still until it is rebuilt for the contracts."""
        self._epoch = 0
        self._cursor: Cursor | None = None
        """As this term last wrote it; None if it must be read. Every write compares it."""
        self._head_number = 0
        self._head_seen_at: float | None = None
        """When the head of `_head_number` was first seen, on the clock."""
        self._inconsistencies = InconsistentAnswers(policy.stall_seconds, clock)
        self._has_doubted = False
        self._malformed = MalformedAnswers(clock)
        self._failed_over_at = -math.inf
        self.is_serving = False
        self._pause_without_node = policy.term_pause_seconds
        self._outage = Outage("indexer.term_over", "indexer.serves_again", clock)

    @property
    def differing_totals(self) -> tuple[str, ...]:
        """Totals of the contracts that differ from the tables, and that nothing explains."""
        return self._audit.differing_totals

    def listen_to(self, heads: HeadAnnouncements) -> None:
        """Let announced heads end the pause between two steps from now on."""
        self._next_poll.heads = heads

    async def run(self) -> None:
        """Follow the chain whenever the lease is free, until cancelled.

        An impossible fact, and a reorg below finality, stop the index and not this task.
        """
        while True:
            try:
                await in_own_task(self._hold_and_serve())
            except Unavailable as error:
                self.is_serving = False
                self._outage.failed(error.message)
                if isinstance(error, NodeUnavailable):
                    await self._wait_for_node()
            finally:
                self.is_serving = False
                self._branches.settle()
                self._progress.end()
            await asyncio.sleep(self._policy.term_pause_seconds)

    async def _hold_and_serve(self) -> None:
        async with self._leases.hold(indexer_lease(self._chain.chain_id)):
            await self.serve()

    async def _wait_for_node(self) -> None:
        """Wait until a node answers, without the lease: another process may have a node.

        Waits longer after each term in which no step succeeded.
        """
        pause = self._pause_without_node
        self._pause_without_node = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        while True:
            await asyncio.sleep(pause)
            try:
                await self._node.head_and_final()
            except NodeUnavailable as error:
                self._outage.failed(error.message)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                return

    async def serve(self) -> None:
        """Follow the chain for one term, under a lease that the caller holds.

        Raises LaneLost, NodeUnavailable and DatabaseUnavailable, which end the term.
        """
        await self.begin_term()
        self.is_serving = True
        if not self._outage.is_on:
            log.info("indexer.serving", epoch=self._epoch)
        try:
            async with asyncio.TaskGroup() as tasks:
                audit = tasks.create_task(self._run_audit())
                try:
                    await self._follow()
                finally:
                    audit.cancel()
                    await self._backfill.forget()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _run_audit(self) -> None:
        """Audit the live index; fresh tables have just been read, and are audited once live."""
        if not self._policy.is_rebuild:
            await self._audit.run(self._epoch)

    async def _follow(self) -> NoReturn:
        while True:
            try:
                if self._stop.reason is not None:
                    await self._stop.wait()
                    if self._lacks_contracts:
                        await self.begin_term()  # A repair does not give the index their facts.
                else:
                    has_more = await self.step()
                    self._outage.over(epoch=self._epoch)
                    self._pause_without_node = self._policy.term_pause_seconds
                    if not has_more:
                        await self._next_poll.wait(self._cursor)
            except Broken as error:
                await self._give_up(error)

    async def _give_up(self, error: Broken) -> None:
        """Stop the index, unless the cause is found and corrected. Raises Unavailable."""
        await self._backfill.forget()
        try:
            if not isinstance(error, IndexStopped) and await self._self_repair.attempt(
                self._node.pinned(), self._epoch, error
            ):
                return
        except Broken as contradiction:
            error = contradiction  # Facts that are indexed contradict each other.
        cursor = await self._read_cursor()
        await self._stop.stop(self._epoch, f"After block {cursor.number}: {reason_of(error)}")

    async def begin_term(self) -> None:
        """Begin a term by raising the epoch, which fences off the holders of earlier terms.

        If any block was indexed without all of the contracts, the index stands still, and a rebuild
        is ordered instead. A stopped index stays stopped.
        """
        self._cursor = None
        chain_id = self._chain.chain_id
        addresses = [contract.address for contract in self._contracts]
        async with transaction(self._pool) as connection:
            follows_all = await chains.has_all_facts_of(connection, chain_id, addresses)
            if follows_all or await chains.has_no_blocks(connection, chain_id):
                self._lacks_contracts = False
                self._epoch = await chains.begin_term(connection, chain_id)
                await chains.record_contracts(connection, chain_id, addresses)
                if not self._policy.is_rebuild and await orders.cancel_for_contracts(connection):
                    await chains.resume(connection, chain_id)
            else:
                # The epoch stays, so that an index whose contracts are named again is whole.
                self._lacks_contracts = True
                self._epoch = await chains.epoch(connection, chain_id)
                await orders.order_for_contracts(connection, addresses)
                await chains.stop(connection, chain_id, self._epoch, _OTHER_CONTRACTS)
        await self._stop.read()

    async def step(self) -> bool:
        """Compare one node's head with the cursor and act on it.

        Returns whether the next step can follow at once. Everything that is written comes from one
        node; the others are asked if the decision needs a second opinion. If the node fails, the
        next one is used at once. If its answers contradict each other, the next one is used in
        every second step.
        Raises ImpossibleFact and IndexStopped: then nothing may be written.
        """
        with refused_as_impossible():
            return await self._step_with_failover()

    async def _step_with_failover(self) -> bool:
        node = self._inconsistencies.node_of_step(self._node.pinned())
        begun = self._clock()
        try:
            return await self._step(node)
        except NodeUnavailable as error:
            self._cursor = None
            self._malformed.failed(node, error, begun)
            others = node.others()
            if not others:
                raise
            if self._clock() - self._failed_over_at > _SAME_FAILURE_SECONDS:
                log.info("indexer.next_node", reason=error.message)
            self._failed_over_at = self._clock()
        except BaseException:
            self._cursor = None
            raise
        try:
            return await self._step(others[0])
        except BaseException:
            self._cursor = None
            raise

    async def _step(self, node: Node) -> bool:
        cursor = self._cursor = self._cursor or await self._read_cursor()
        poll = await self._poll(node, cursor)
        denies = poll.verdict in (CursorVerdict.CONTRADICTED, CursorVerdict.SHORT)
        if denies or self._branches.is_disputed:
            ruling = await self._branches.rule(node, cursor)
            if ruling is None:
                return False
            if isinstance(ruling, Undo):
                return await self._switch_branch(cursor, ruling)
            if denies or ruling.node is not node:
                node = ruling.node
                poll = await self._poll(node, cursor)
        if poll.verdict is CursorVerdict.BEHIND:
            return await self._advance(node, cursor, poll)
        if poll.verdict is CursorVerdict.CURRENT:
            await self._finalize(node, cursor, poll.final)
        return False

    async def _read_cursor(self) -> Cursor:
        async with session(self._pool) as connection:
            return await chains.cursor(connection, self._chain.chain_id)

    async def _poll(self, node: Node, cursor: Cursor) -> HeadPoll:
        expected = self._next_poll.take_expected(cursor)
        poll = await poll_head(node, cursor, self._contracts, expected)
        final = self._finality.checked(node, poll.final, poll.head.number)
        now = self._clock()
        self._next_poll.observe(poll.head, now)
        if poll.head.number > self._head_number or self._head_seen_at is None:
            self._head_number, self._head_seen_at = poll.head.number, now
        self._measure(cursor, poll.head)
        return replace(poll, final=final)

    async def _advance(self, node: Node, cursor: Cursor, poll: HeadPoll) -> bool:
        """Commit the next blocks; far from the head several commits follow one poll."""
        until = self._clock() + self._policy.backfill.turn_seconds
        settled = self._settled(poll)
        while True:
            is_far = settled - cursor.number > self._policy.head_blocks
            if is_far:
                self._progress.begin(cursor.number)
            try:
                block_range = (
                    await self._backfill.take(node, cursor.number + 1, settled)
                    if is_far
                    else await self._read(node, cursor, poll)
                )
            except Broken as error:
                self._doubt(node, error)
            if block_range is None or block_range.parent_hash != cursor.hash:
                await self._backfill.forget()
                # No node of an open dispute about a log is reported: the other would count alone.
                self._inconsistencies.note(node, may_report=not self._witnesses.is_disputed)
                return False
            self._inconsistencies.over()
            self._has_doubted = False
            self._next_poll.end_retries()
            cursor = await self._commit(cursor, block_range, poll.head.number)
            if is_far:
                events = sum(block_range.fact_counts().values())
                self._progress.advance(cursor.number, settled, events)
                self._audit.end_range()
            is_far = is_far and settled - cursor.number > self._policy.head_blocks
            if not is_far or self._clock() >= until:
                break
        await self._finalize(node, cursor, poll.final)
        self._next_poll.expect(poll.head.number)
        return cursor.number < poll.head.number

    def _settled(self, poll: HeadPoll) -> int:
        """The height up to which blocks are read without watching for reorgs."""
        head = poll.head.number
        final = poll.final if poll.final is not None else head - self._policy.final_depth
        return min(final, head)

    async def _read(self, node: Node, cursor: Cursor, poll: HeadPoll) -> BlockRange | None:
        first, head = cursor.number + 1, poll.head.number
        if poll.headers:
            return await self._reader.checked(node, poll.headers, list(poll.logs), first)
        last = min(head, first + self._policy.head_blocks - 1)
        return await self._reader.read_head(node, first, last)

    def _doubt(self, node: Node, error: Broken) -> NoReturn:
        """Raises NodeUnavailable once if other nodes could show that this node's log is false."""
        if node.is_alone or self._has_doubted:
            raise error
        self._has_doubted = True
        node.report_contradiction(LOGS)
        raise NodeUnavailable(f"A node's log is impossible: {error.message}") from error

    async def _switch_branch(self, cursor: Cursor, ruling: Undo) -> bool:
        """Undo the old branch and write the new one in one database transaction.

        Returns False if the new branch cannot be read as a whole yet. If its facts are impossible,
        the old branch is undone alone, and ImpossibleFact is raised.
        """
        try:
            branch = await self._branch_reader.read(ruling, cursor)
        except Broken as error:
            self._doubt(ruling.node, error)
        if branch is None:
            return False
        fork, head_number = ruling.fork, branch.head_number
        if branch.blocks is None:
            self._cursor = await self._commits.undo(self._epoch, cursor, fork, head_number)
            self._end_reorg(cursor, fork, head_number)
            return True
        try:
            with refused_as_impossible():
                await self._commit(cursor, branch.blocks, head_number, fork)
        except ImpossibleFact:
            # The cause may lie below the fork. The nodes that the search asks show the fork and
            # not the old branch.
            self._cursor = await self._commits.undo(self._epoch, cursor, fork, head_number)
            self._end_reorg(cursor, fork, head_number)
            raise
        self._end_reorg(cursor, fork, head_number)
        return True

    def _end_reorg(self, cursor: Cursor, fork: tuple[int, Hash32], head_number: int) -> None:
        """`cursor` is that of the old branch."""
        self._has_doubted = False
        self._branches.settle()
        depth = cursor.number - fork[0]
        telemetry.REORGS.inc()
        telemetry.REORG_DEPTH.observe(depth)
        log.warning("indexer.reorg", fork=fork[0], depth=depth, head=head_number)
        self._next_poll.expect(head_number)

    async def _commit(
        self,
        cursor: Cursor,
        block_range: BlockRange,
        head_number: int,
        fork: tuple[int, Hash32] | None = None,
    ) -> Cursor:
        self._cursor = await self._commits.write(
            self._epoch, cursor, block_range, head_number, fork
        )
        if self._head_seen_at is not None and self._cursor.number >= self._head_number:
            telemetry.HEAD_TO_COMMIT_SECONDS.observe(self._clock() - self._head_seen_at)
        return self._cursor

    async def _finalize(self, node: Node, cursor: Cursor, claim: int | None) -> None:
        final = await self._finality.new_height(node, claim, cursor)
        if final is None:
            return
        async with session(self._pool) as connection:
            await chains.raise_finality(connection, self._chain.chain_id, self._epoch, final)
        self._cursor = replace(cursor, final_number=min(final, cursor.number))

    def _measure(self, cursor: Cursor, head: Header) -> None:
        if self._policy.is_rebuild:
            return
        telemetry.HEAD_BLOCK.set(head.number)
        telemetry.SYNC_BLOCK.set(cursor.number)
        telemetry.FINAL_BLOCK.set(cursor.final_number)
        telemetry.HEAD_LAG_BLOCKS.set(max(0, head.number - cursor.number))
