"""Logs an outage twice: a line when it begins, and a line with counts when it is over.

A loop that retries twice a second would otherwise fill the log with one sentence, and hide the
others.
"""

import structlog

from ltzd.concurrency.clock import Clock, loop_time

log = structlog.get_logger()


class Outage:
    """One thing that may fail again and again, such as a loop's calls of a node.

    `begins` and `ends` are the names of the two lines. The second line has `failures`, the number
    of `failed` calls, and `seconds`, the time since the first of them.
    """

    def __init__(self, begins: str, ends: str, clock: Clock = loop_time) -> None:
        self._begins = begins
        self._ends = ends
        self._clock = clock
        self._failures = 0
        self._since = 0.0

    @property
    def is_on(self) -> bool:
        return self._failures > 0

    def failed(self, reason: str, **facts: object) -> None:
        self._failures += 1
        if self._failures == 1:
            self._since = self._clock()
            log.warning(self._begins, reason=reason, **facts)

    def over(self, **facts: object) -> None:
        """Does nothing if the last attempt succeeded too."""
        if self._failures:
            seconds = round(self._clock() - self._since, 1)
            log.info(self._ends, failures=self._failures, seconds=seconds, **facts)
            self._failures = 0
