"""The ranges of settled blocks that are read ahead of the cursor, several at once.

The next ranges are read and made rows while PostgreSQL commits the earlier ones. `take` returns
ranges in their order, joined to some thousand events. A range that fails is read again; the ranges
behind it are kept. The memory for ranges is bounded, whatever the blocks hold.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from ltzd import telemetry
from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock
from ltzd.errors import NodeUnavailable
from ltzd.indexer.backfill.reader import RangeReader, ReadRange
from ltzd.indexer.policy import BackfillPolicy
from ltzd.indexer.reading import BlockRange, joined
from ltzd.rules.indexer.range_sizes import RangeSize

_HELD_FACTOR = 3
"""Memory for a byte of JSON while an answer is decoded."""


class _PendingRange(msgspec.Struct, eq=False):
    """The blocks first…last, which `task` reads; the task may return fewer of them."""

    first: int
    last: int
    expected_bytes: int
    task: asyncio.Task[ReadRange | None]

    @property
    def ready(self) -> ReadRange | None:
        """The blocks, or None while they are being read, and if that has failed."""
        if not self.task.done() or self.task.cancelled() or self.task.exception() is not None:
            return None
        return self.task.result()

    @property
    def held_bytes(self) -> int:
        ready = self.ready
        return self.expected_bytes * _HELD_FACTOR if ready is None else ready.held_bytes


class BackfillRanges:
    """`most_blocks` bounds the length of a range. Tasks run until `forget` cancels them."""

    def __init__(
        self, reader: RangeReader, policy: BackfillPolicy, most_blocks: int, clock: Clock
    ) -> None:
        self._reader = reader
        self._policy = policy
        self._clock = clock
        self._size = RangeSize(most_blocks, min(most_blocks, policy.first_blocks))
        self._density = 0.0
        """Bytes of JSON in a block, in the last range that was read."""
        self._ahead: deque[_PendingRange] = deque()
        self._nodes: Sequence[Node] = ()
        self._turn = 0
        self._settled = 0

    async def take(self, node: Node, first: int, settled: int) -> BlockRange | None:
        """The next blocks from `first` on, at most up to `settled`, ready to be committed.

        Waits until some thousand events are ready, or `linger_seconds` have passed since the first
        range was. Returns None if no node's answers fit each other. Raises NodeUnavailable, and
        Broken for an impossible log.
        """
        self._nodes = [node, *node.others(settled)]
        self._settled = settled
        self._begin_at(first)
        front = self._ahead[0]
        await asyncio.wait({front.task})
        self._ahead.popleft()
        part = front.task.result()
        if part is None:
            return None
        taken = [part]
        await self._take_more(taken)
        telemetry.BACKFILL_HELD_BYTES.set(self._held_bytes())
        return joined([each.blocks for each in taken])

    async def forget(self) -> None:
        """End all reading, and drop what was read."""
        tasks = [ahead.task for ahead in self._ahead]
        self._ahead.clear()
        for task in tasks:
            task.cancel()
        telemetry.BACKFILL_HELD_BYTES.set(0)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_more(self, taken: list[ReadRange]) -> None:
        """Add ranges that follow, as many as are ready, and wait until the events suffice.

        Ranges of several nodes are joined only if they are of one branch.
        """
        policy = self._policy
        until = self._clock() + policy.linger_seconds
        events = taken[0].events
        while events < policy.most_events:
            self._begin_at(taken[-1].last + 1)
            if not self._ahead:
                return
            following = self._ahead[0]
            seconds = until - self._clock()
            if not following.task.done() and seconds > 0 and events < policy.least_events:
                await asyncio.wait({following.task}, timeout=seconds)
            part = following.ready
            if part is None or events + part.events > policy.most_events:
                return
            if part.blocks.parent_hash != taken[-1].blocks.last[1]:
                return
            self._ahead.popleft()
            taken.append(part)
            events += part.events
        self._begin_at(taken[-1].last + 1)

    # Reading ahead

    def _begin_at(self, first: int) -> None:
        """Read on from `first`: drops other ranges, and fills what lies before the others."""
        while self._ahead and self._ahead[0].first < first:
            self._ahead.popleft().task.cancel()
        end = self._ahead[0].first - 1 if self._ahead else self._settled
        if first <= end and (not self._ahead or self._ahead[0].first > first):
            self._ahead.appendleft(self._start(first, end))
        self._fill()

    def _fill(self) -> None:
        """Start to read the ranges behind the last one, as many as the bounds allow."""
        policy = self._policy
        while self._ahead and self._ahead[-1].last < self._settled:
            reading = sum(not ahead.task.done() for ahead in self._ahead)
            if reading >= policy.concurrency or self._held_bytes() >= policy.held_bytes:
                return
            self._ahead.append(self._start(self._ahead[-1].last + 1, self._settled))

    def _start(self, first: int, end: int) -> _PendingRange:
        last = min(end, first + self._size.blocks - 1)
        turn = self._turn % len(self._nodes)
        self._turn += 1
        nodes = [*self._nodes[turn:], *self._nodes[:turn]]
        task = asyncio.create_task(self._read(nodes, first, last))
        task.add_done_callback(self._continue)
        expected = int(self._density * (last - first + 1))
        return _PendingRange(first, last, max(expected, self._size.target_bytes // 4), task)

    def _continue(self, task: asyncio.Task[ReadRange | None]) -> None:
        """Read on after a range was read; a failed one is read again when it is asked for."""
        if task.cancelled() or task.exception() is not None:
            return
        if (part := task.result()) is not None:
            self._density = part.json_bytes / part.count
            self._size = self._size.after(part.count, part.json_bytes)
            self._fill()

    async def _read(self, nodes: Sequence[Node], first: int, last: int) -> ReadRange | None:
        """Read a range from the first of the nodes whose answers fit each other."""
        faults = []
        for node in nodes:
            try:
                part = await self._reader.read(node, first, last)
            except NodeUnavailable as error:
                faults.append(error)
            else:
                if part is not None:
                    return part
        if len(faults) == len(nodes):
            raise faults[-1]
        return None

    def _held_bytes(self) -> int:
        return sum(ahead.held_bytes for ahead in self._ahead)
