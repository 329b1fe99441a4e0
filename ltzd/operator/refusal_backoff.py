"""Slows a lane down after nodes have refused several of its transactions for good.

Each refusal costs a self-transfer. The first few in a row cause no pause, so that one caller's bad
call does not delay the others. After that the lane signs one transaction at a time, after growing
pauses, until a node accepts one of its calls.
"""

import time

from ltzd.concurrency.clock import Clock

_FREE_REFUSALS = 2
"""Refusals in a row that cause no pause."""
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 120.0


class RefusalBackoff:
    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._in_a_row = 0
        self._until = float("-inf")

    def refused(self) -> None:
        """Record that nodes refused a call's bytes for good."""
        self._in_a_row += 1
        if self._in_a_row > _FREE_REFUSALS:
            pause = _FIRST_PAUSE_SECONDS * 2 ** min(self._in_a_row - _FREE_REFUSALS - 1, 16)
            self._until = self._clock() + min(pause, _LONGEST_PAUSE_SECONDS)

    def accepted(self) -> None:
        """Record that a node accepted a call's bytes."""
        self._in_a_row, self._until = 0, float("-inf")

    @property
    def is_waiting(self) -> bool:
        return self._clock() < self._until

    @property
    def is_probing(self) -> bool:
        """Whether only one transaction may be in flight at a time."""
        return self._in_a_row > _FREE_REFUSALS
