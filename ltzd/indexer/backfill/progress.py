"""Measures the rate of the backfill, and reports it in metrics and in the log.

Rates are measured over the last half minute. `ltzd status` measures blocks by themselves, from the
rows of any indexer.
"""

from collections import deque

import msgspec
import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import Clock

log = structlog.get_logger()

_WINDOW_SECONDS = 30.0
_LINE_SECONDS = 10.0
_LEAST_SECONDS = 0.5
"""The least time between the first and the newest commit: a shorter time gives no rate."""


class _Commit(msgspec.Struct, frozen=True):
    at: float
    number: int
    events: int
    """The events of all commits up to this one."""


class BackfillProgress:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._commits: deque[_Commit] = deque()
        self._events = 0
        self._first = 0
        self._told_at = 0.0

    def begin(self, number: int) -> None:
        """Begin to measure at the cursor; does nothing while blocks follow each other."""
        if self._commits and self._commits[-1].number == number:
            return
        self._commits.clear()
        self._commits.append(_Commit(self._clock(), number, self._events))
        self._first, self._told_at = number, self._clock()

    def advance(self, number: int, settled: int, events: int) -> None:
        """Count a commit up to a block, of blocks that are settled up to `settled`."""
        now = self._clock()
        self._events += events
        self._commits.append(_Commit(now, number, self._events))
        while now - self._commits[0].at > _WINDOW_SECONDS and len(self._commits) > 2:
            self._commits.popleft()
        oldest = self._commits[0]
        seconds = now - oldest.at
        if number >= settled:
            self.end()
        elif seconds >= _LEAST_SECONDS and number > oldest.number:
            per_second = (number - oldest.number) / seconds
            left = (settled - number) / per_second
            telemetry.BACKFILL_SECONDS_LEFT.set(left)
            if now - self._told_at >= _LINE_SECONDS:
                self._told_at = now
                log.info(
                    "indexer.backfill",
                    block=number,
                    of=settled,
                    percent=round(100 * (number - self._first) / (settled - self._first)),
                    blocks_per_second=round(per_second),
                    events_per_second=round((self._events - oldest.events) / seconds),
                    seconds_left=round(left),
                )

    def end(self) -> None:
        """End the measurement, because the cursor is near the head."""
        if self._commits:
            self._commits.clear()
            telemetry.BACKFILL_SECONDS_LEFT.set(0)
