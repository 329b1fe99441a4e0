"""The chain's time: the wall clock plus an offset that tools set, in whole Unix seconds.

Timestamps never fall from a block to the next. Blocks of the same second have the same timestamp,
as in anvil and on chains with several blocks a second.
"""

import time


class ChainClock:
    def __init__(self) -> None:
        self.offset_seconds = 0
        self.interval_seconds: int | None = None
        """Seconds from each block to the next, whatever the wall clock says; follows it if None."""
        self._set_for_next: int | None = None

    def now(self) -> int:
        return int(time.time()) + self.offset_seconds

    def advance(self, seconds: int) -> int:
        """Move the clock; returns its total offset from the wall clock."""
        self.offset_seconds += seconds
        return self.offset_seconds

    def set_to(self, timestamp: int) -> int:
        """Set the clock; returns its total offset from the wall clock."""
        self.offset_seconds = timestamp - int(time.time())
        return self.offset_seconds

    def restore_offset(self, seconds: int) -> None:
        """Return to an earlier offset from the wall clock."""
        self.offset_seconds = seconds

    def set_next(self, timestamp: int) -> None:
        self._set_for_next = timestamp

    def next_timestamp(self, parent_timestamp: int) -> int:
        if self._set_for_next is not None:
            timestamp = self._set_for_next
        elif self.interval_seconds is not None:
            timestamp = parent_timestamp + self.interval_seconds
        else:
            timestamp = self.now()
        return max(timestamp, parent_timestamp)

    def reset(self) -> None:
        """Return to the wall clock."""
        self.offset_seconds, self.interval_seconds, self._set_for_next = 0, None, None

    def mined(self) -> None:
        """Call after each block: the clock continues from a timestamp that `set_next` set."""
        if self._set_for_next is not None:
            self.set_to(self._set_for_next)
            self._set_for_next = None
