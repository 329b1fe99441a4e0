"""How old a standby's answers may be, from positions in the primary's write-ahead log.

The primary's position is noted together with the moment just before it was asked. Once the standby
has replayed that position, everything that was committed before that moment can be read there. All
moments are of one monotonic clock, so clocks of other machines do not matter, and an idle primary,
a cut line and a standby that stands still need no rules of their own.

Units: seconds; bytes of the log.
"""

import math
from collections import deque

import msgspec


class ReplayProgress(msgspec.Struct):
    """Positions older than `most_seconds` are forgotten, because they prove too high an age."""

    most_seconds: float
    _positions: deque[tuple[float, int]] = msgspec.field(default_factory=deque)
    _replayed_at: float = -math.inf

    def note(self, at: float, position: int) -> None:
        """The primary was at least at this position at this moment."""
        self._positions.append((at, position))
        while self._positions and at - self._positions[0][0] > self.most_seconds:
            self._positions.popleft()

    def replayed(self, position: int) -> None:
        """The standby has replayed the log up to this position."""
        while self._positions and self._positions[0][1] <= position:
            self._replayed_at = self._positions.popleft()[0]

    def forget(self) -> None:
        """The standby, or the primary, may be another one from now on."""
        self._positions.clear()
        self.forget_replay()

    def forget_replay(self) -> None:
        """From now on `replayed` tells of another standby of the same primary."""
        self._replayed_at = -math.inf

    def age(self, now: float) -> float | None:
        """An upper bound of the age of what the standby shows now; None if it is too old."""
        age = now - self._replayed_at
        return age if age <= self.most_seconds else None
