"""Slows a lane down whose work nodes refuse for good, again and again.

Each refusal costs a self-transfer. A few in a row cost no time, so that one caller's bad luck is
nobody else's; after that the lane signs one transaction at a time, after growing pauses, until a
node takes one of its calls.
"""

import time

from ltzd.concurrency.clock import Clock

_FREE = 2
"""Refusals in a row that cost no time."""
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 120.0


class RefusalBackoff:
    """`clock` counts seconds."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._in_a_row = 0
        self._until = float("-inf")

    def refused(self) -> None:
        """A node refused a call's bytes for good."""
        self._in_a_row += 1
        if self._in_a_row > _FREE:
            pause = _FIRST_PAUSE_SECONDS * 2 ** min(self._in_a_row - _FREE - 1, 16)
            self._until = self._clock() + min(pause, _LONGEST_PAUSE_SECONDS)

    def accepted(self) -> None:
        """A node took a call's bytes."""
        self._in_a_row, self._until = 0, float("-inf")

    @property
    def is_waiting(self) -> bool:
        return self._clock() < self._until

    @property
    def is_probing(self) -> bool:
        """Whether only one transaction may be tried at a time."""
        return self._in_a_row > _FREE
