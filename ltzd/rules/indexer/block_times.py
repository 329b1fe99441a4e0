"""Measures a chain's block time from its heads, and derives how often to poll. Units: seconds.

Timestamps are whole seconds, so the time between blocks is taken over a window. A chain that mines
on demand has no block time: its gaps differ too much.
"""

from collections.abc import Sequence

import msgspec

_WINDOW = 32
"""Heads that are remembered."""
_LEAST_GAPS = 4
_LARGEST_RATIO = 4.0
"""A gap of more than this multiple of the mean makes a chain irregular; missed slots stay below."""


class HeadTime(msgspec.Struct, frozen=True):
    """`timestamp` is the block's own; `at` is when the head arrived here, on any clock."""

    number: int
    timestamp: int
    at: float


class BlockTimes(msgspec.Struct, frozen=True):
    heads: Sequence[HeadTime] = ()

    def with_head(self, number: int, timestamp: int, at: float) -> "BlockTimes":
        """The measurement after a head; a head that is not higher is ignored.

        A head below the newest one by more than the window is the head of another chain or of a
        rollback, which begins the measurement anew.
        """
        if self.heads:
            newest = self.heads[-1].number
            if newest - _WINDOW < number <= newest:
                return self
            if number <= newest:
                return BlockTimes((HeadTime(number, timestamp, at),))
        return BlockTimes((*self.heads[1 - _WINDOW :], HeadTime(number, timestamp, at)))

    def seconds(self) -> float | None:
        """The block time, or None while too few blocks were seen or if they are irregular."""
        gaps = [
            (later.number - earlier.number, later.timestamp - earlier.timestamp)
            for earlier, later in zip(self.heads, self.heads[1:], strict=False)
        ]
        if len(gaps) < _LEAST_GAPS:
            return None
        blocks = sum(count for count, _ in gaps)
        mean = sum(passed for _, passed in gaps) / blocks
        # Timestamps are rounded to seconds, so that a gap may appear one second longer.
        if any(passed > _LARGEST_RATIO * mean * count + 1 for count, passed in gaps):
            return None
        if mean > 0:
            return mean
        # All blocks have the same second: the chain is faster than its timestamps tell.
        return (self.heads[-1].at - self.heads[0].at) / blocks


def poll_seconds(block_time: float | None, fastest: float, slowest: float) -> float:
    """Half a block time, between both bounds; `fastest` on a chain without a block time."""
    if block_time is None:
        return fastest
    return max(fastest, min(block_time / 2, slowest))


def silence_seconds(block_time: float | None, least: float) -> float | None:
    """How long a socket may announce no head: three block times; None if none is known."""
    return None if block_time is None else max(3 * block_time, least)
