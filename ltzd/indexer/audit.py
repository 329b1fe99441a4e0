"""Reads settled blocks a second time, in the background, and compares them with the tables.

The audit reads from a node other than the one in use, if there is one. With a single node it
compares the logs with the receipts of each block whose bloom does not exclude a log. At the end of
each range of a backfill, and now and then at the head, the audit compares the contracts' own totals
with the tables; if they differ, it compares blocks from the newest one down until the totals agree.
Facts that differ are corrected (`indexer/repair.py`).

The audit pauses during a backfill, and takes a small part of a node's time: a range that ends
during a pause is compared together with the next one.
"""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress

import asyncpg
import structlog

from ltzd import telemetry
from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.concurrency.loggable_errors import loggable_reason
from ltzd.concurrency.outages import Outage
from ltzd.errors import Broken, LaneLost, NodeUnavailable, Unavailable
from ltzd.indexer.completeness.open_blocks import blocks_that_may_hold
from ltzd.indexer.completeness.totals import TotalDifference, TotalsCheck, check_totals
from ltzd.indexer.contracts import IndexedContract
from ltzd.indexer.policy import AuditPolicy
from ltzd.indexer.repair import IndexRepair, RangeCheck
from ltzd.store.database import Pool, session
from ltzd.store.indexer import audits
from ltzd.store.indexer.audits import AuditProgress

log = structlog.get_logger()

_BLOCKS_AT_ONCE = 4
"""The most blocks whose receipts are compared between two pauses."""
_BURST_SECONDS = 0.05
"""The audit pauses earlier once its work takes this long: a node may answer nothing meanwhile."""
_UNDECIDED_CHECKS = 3
"""Checks of blocks that nodes show differently, before the audit goes on without them."""


class Audit:
    """The audit of one chain's index, during the term of the indexer's lease.

    Remembers up to where the totals agreed, and which differences of totals no block explains.
    """

    def __init__(
        self,
        pool: Pool,
        chain_id: int,
        node: Node,
        contracts: Sequence[IndexedContract],
        repair: IndexRepair,
        policy: AuditPolicy,
        clock: Clock = loop_time,
    ) -> None:
        self._pool = pool
        self._chain_id = chain_id
        self._node = node
        self._contracts = contracts
        self._repair = repair
        self._policy = policy
        self._clock = clock
        self._compared_at: float | None = None
        """When the totals were last compared."""
        self._range_end = asyncio.Event()
        """Set at the end of a backfill's range, until the next step."""
        self._has_state = True
        """Whether the last comparison had totals: nodes may have pruned a range's last state."""
        self._searched_number = 0
        """The height up to which the totals agreed, or all blocks were compared in vain."""
        self._unexplained: frozenset[TotalDifference] = frozenset()
        """Totals that differ although all blocks were compared."""
        self.differing_totals: tuple[str, ...] = ()
        """The totals of the last comparison that differ, although all blocks were compared."""
        self._undecided_checks = 0
        self._silent_witnesses = 0
        """Nodes in a row that did not answer for the next range."""

    async def run(self, epoch: int) -> None:
        """Audit until the term is over, or until cancelled. Begins after a pause."""
        self._searched_number, self._unexplained = 0, frozenset()  # A rebuild may end a term.
        try:
            await self._run(epoch)
        finally:
            self._note_differences(frozenset())  # Another process compares from now on.

    async def _run(self, epoch: int) -> None:
        await asyncio.sleep(self._policy.idle_seconds)
        has_worked = True
        outage = Outage("index.audit_waits", "index.audit_continues", self._clock)
        while True:
            if not has_worked:
                await self._idle()
            begun = self._clock()
            try:
                has_worked = await self.step(epoch)
                outage.over()
            except LaneLost:
                return
            except (Unavailable, asyncpg.PostgresError) as error:
                outage.failed(loggable_reason(error))
                has_worked = False
            except Broken as error:
                telemetry.AUDIT_FINDINGS.labels("failed").inc()
                log.critical("index.audit_failed", reason=error.message)
                has_worked = False
            if has_worked:
                await self._rest(begun)

    def end_range(self) -> None:
        """Request a comparison of totals: a range of settled blocks was just committed."""
        self._range_end.set()

    async def step(self, epoch: int) -> bool:
        """Compare the totals if that is due, or the next range.

        Returns whether more may be left to do. Raises Unavailable, LaneLost if the term is over,
        and Broken if what was found cannot be corrected.
        """
        is_range_end = self._range_end.is_set()
        self._range_end.clear()
        state = await self._progress()
        telemetry.AUDITED_BLOCK.set(state.audited_number)
        if state.is_stopped:
            return False
        if (is_range_end and self._has_state) or self._are_totals_due():
            self._compared_at = self._clock()
            await self._compare_totals(epoch, state)
            return True
        is_near = state.head_number - state.cursor_number <= self._policy.nearby_blocks
        if not is_near or state.audited_number >= state.final_number:
            return False
        return await self._audit_range(epoch, state)

    # Ranges

    async def _audit_range(self, epoch: int, state: AuditProgress) -> bool:
        first = state.audited_number + 1
        last = min(state.final_number, first + self._policy.range_blocks - 1)
        node, is_single = self._witness(last)
        try:
            check = await self._repair.check(node, first, last)
        except NodeUnavailable:
            self._silent_witnesses += 1
            raise
        self._silent_witnesses = 0
        if not await self._correct(epoch, check):
            return False
        if is_single:
            await self._compare_blocks(epoch, node, first, check.last, records=True)
        await self._record(epoch, check.last)
        return True

    def _witness(self, number: int) -> tuple[Node, bool]:
        """A node that reads the blocks again, and whether it is the node in use.

        Another node is asked first; after each that does not answer the next one, at last the node
        in use.
        """
        node = self._node.pinned()
        witnesses = [*node.others(number), node]
        witness = witnesses[self._silent_witnesses % len(witnesses)]
        return witness, witness is node

    async def _correct(self, epoch: int, check: RangeCheck) -> bool:
        """Correct what a check has found; returns whether the audit can go on after its blocks."""
        for kind, count in check.counts().items():
            telemetry.AUDIT_FINDINGS.labels(kind).inc(count)
        await self._repair.correct(check, epoch)
        if check.undecided:
            self._undecided_checks += 1
            if self._undecided_checks < _UNDECIDED_CHECKS:
                return False
            telemetry.AUDIT_FINDINGS.labels("undecided").inc(len(check.undecided))
            log.error("index.audit_undecided", blocks=list(check.undecided))
        self._undecided_checks = 0
        return True

    async def _compare_blocks(
        self, epoch: int, node: Node, first: int, last: int, *, records: bool
    ) -> bool:
        """Compare the receipts of all blocks that may hold logs; returns whether any differed."""
        has_found = False
        numbers = await blocks_that_may_hold(node, self._contracts, first, last)
        begun, together = self._clock(), 0
        for number in numbers:
            check = await self._repair.check_blocks(node, [number], number, number)
            has_found |= bool(check.differences)
            while not await self._correct(epoch, check):
                await asyncio.sleep(self._policy.second_check_seconds)
                check = await self._repair.check_blocks(node, [number], number, number)
            together += 1
            is_long = self._clock() - begun >= _BURST_SECONDS
            if is_long or together == _BLOCKS_AT_ONCE or number == numbers[-1]:
                if records:
                    await self._record(epoch, number)
                await self._rest(begun)
                begun, together = self._clock(), 0
        return has_found

    async def _record(self, epoch: int, number: int) -> None:
        async with session(self._pool) as connection:
            await audits.record(connection, self._chain_id, epoch, number)
        telemetry.AUDITED_BLOCK.set(number)

    # Totals

    def _are_totals_due(self) -> bool:
        since = self._compared_at
        return since is None or self._clock() - since >= self._policy.totals_seconds

    async def _compare_totals(self, epoch: int, state: AuditProgress) -> None:
        node = self._node.pinned()
        check = await self._differing_totals(node)
        self._has_state = check is not None
        if check is None:
            return
        assert check.differences is not None
        differing = frozenset(check.differences)
        if differing and differing <= self._unexplained:
            return
        if differing:
            totals = sorted(map(str, differing))
            searched = check.cursor.number
            log.error("index.totals_differ", block=searched, totals=totals)
            check = await self._search(epoch, node, check)
            differing = frozenset(check.differences or ())
            # Other blocks than the searched ones may explain it: the next comparison searches them.
            if differing and check.cursor.number == searched:
                log.error("index.totals_unexplained", totals=sorted(map(str, differing)))
                self._unexplained |= differing
        self._note_differences(differing)
        # A reorg may replace blocks above the final one before the next comparison.
        self._searched_number = state.final_number

    def _note_differences(self, differing: frozenset[TotalDifference]) -> None:
        self.differing_totals = tuple(sorted(map(str, differing)))
        telemetry.TOTALS_DIFFER.set(len(differing))

    async def _differing_totals(self, node: Node) -> TotalsCheck | None:
        """The totals that differ in two checks, the second one at another node where there is one.

        Returns None if no node tells the totals of the newest indexed block.
        """
        place = secrets.token_bytes(32)
        check = await self._check_totals(node, place)
        if check.differences is None:
            telemetry.TOTALS_CHECKS.labels("unavailable").inc()
            return None
        if check.differences:
            await asyncio.sleep(self._policy.second_check_seconds)
            again = await self._check_totals(next(iter(node.others()), node), place)
            if again.differences is None:
                telemetry.TOTALS_CHECKS.labels("unavailable").inc()
                return None
            names = {difference.name for difference in check.differences}
            both = [difference for difference in again.differences if difference.name in names]
            check = TotalsCheck(again.cursor, both)
        telemetry.TOTALS_CHECKS.labels("differ" if check.differences else "agree").inc()
        return check

    async def _check_totals(self, node: Node, place: bytes) -> TotalsCheck:
        sources = [(contract.address, contract.totals) for contract in self._contracts]
        return await check_totals(self._pool, self._chain_id, node, sources, place)

    async def _search(self, epoch: int, node: Node, check: TotalsCheck) -> TotalsCheck:
        """Compare blocks from the newest down to where the totals agreed, until they agree again.

        Returns the last comparison of totals, which may be of a newer block than the searched ones.
        """
        last = check.cursor.number
        while last > self._searched_number:
            begun = self._clock()
            first = max(self._searched_number + 1, last - self._policy.range_blocks + 1)
            if await self._search_range(epoch, node, first, last):
                check = await self._differing_totals(node) or check
                if not check.differences:
                    return check
            last = first - 1
            await self._rest(begun)
        return check

    async def _search_range(self, epoch: int, node: Node, first: int, last: int) -> bool:
        """Return whether a block differed."""
        has_found = False
        while first <= last:
            check = await self._repair.check(node, first, last)
            has_found |= bool(check.differences)
            await self._repair.correct(check, epoch)
            has_found |= await self._compare_blocks(epoch, node, first, check.last, records=False)
            first = check.last + 1
        return has_found

    # The rest

    async def _progress(self) -> AuditProgress:
        async with session(self._pool) as connection:
            return await audits.progress(connection, self._chain_id)

    async def _idle(self) -> None:
        """Wait for the end of a range, but not longer than until blocks may be final."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._policy.idle_seconds):
                await self._range_end.wait()

    async def _rest(self, begun: float) -> None:
        """Pause in proportion to the work since `begun`."""
        policy = self._policy
        seconds = policy.rest * (self._clock() - begun)
        await asyncio.sleep(
            min(max(seconds, policy.least_pause_seconds), policy.longest_pause_seconds)
        )
