"""The chain's time: the wall clock moved by what tools asked for, in whole Unix seconds.

Timestamps grow with every block, so blocks mined faster than one a second run ahead of the wall
clock until it catches up.
"""

import time


class ChainClock:
    def __init__(self) -> None:
        self.offset_seconds = 0
        self._set_for_next: int | None = None

    def now(self) -> int:
        return int(time.time()) + self.offset_seconds

    def advance(self, seconds: int) -> int:
        """Move the clock; answers the whole offset from the wall clock."""
        self.offset_seconds += seconds
        return self.offset_seconds

    def set_to(self, timestamp: int) -> int:
        """Set the clock; answers the whole offset from the wall clock."""
        self.offset_seconds = timestamp - int(time.time())
        return self.offset_seconds

    def set_next(self, timestamp: int) -> None:
        self._set_for_next = timestamp

    def next_timestamp(self, parent_timestamp: int) -> int:
        wanted = self.now() if self._set_for_next is None else self._set_for_next
        return max(wanted, parent_timestamp + 1)

    def mined(self) -> None:
        """A block has used the next timestamp; from one that a tool has set, time goes on."""
        if self._set_for_next is not None:
            self.set_to(self._set_for_next)
            self._set_for_next = None
