"""Decides the next partition of the table of events, by the time in the events' ids.

Units: Unix seconds and bytes. Widths are powers of two and bounds their multiples.
"""

from typing import Final

import msgspec

AHEAD: Final = 2**17
"""Partitions reach at least this far beyond now, so the creator may be away for 36 hours."""
USUAL_WIDTH: Final = 2**21
"""24 days: the width of the first partition of new ids, and of a partition after an empty one."""
LEAST_WIDTH: Final = 2**16
MOST_WIDTH: Final = 2**22
TARGET_BYTES: Final = 2**32
"""The intended size of a partition's rows, without indexes."""
MOST_MOVED_ROWS: Final = 50_000
"""The most rows that are moved out of the default partition while its writers wait."""


class Newest(msgspec.Struct, frozen=True):
    """The newest partition. `lower` is None for the partition of the ids of earlier versions."""

    lower: int | None
    upper: int
    size: int


class Waiting(msgspec.Struct, frozen=True):
    """The rows of the default partition that the next partition could hold.

    `first` and `last` are the earliest and the latest time in the rows' ids.
    """

    rows: int
    first: int
    last: int


class Bounds(msgspec.Struct, frozen=True):
    lower: int
    upper: int


def is_due(newest: Newest, now: int) -> bool:
    return newest.upper < now + AHEAD


def next_bounds(newest: Newest, waiting: Waiting | None, now: int) -> Bounds:
    """The partition that follows.

    The partition includes the waiting rows if they may be moved. Otherwise it begins after them,
    and they stay in the default partition.
    """
    width = next_width(newest)
    begin = newest.upper if newest.lower is not None else max(newest.upper, _floor(now, width))
    if waiting is not None:
        if waiting.rows <= MOST_MOVED_ROWS:
            begin = min(begin, max(newest.upper, _floor(waiting.first, LEAST_WIDTH)))
        else:
            begin = max(begin, _floor(max(now, waiting.last), LEAST_WIDTH) + LEAST_WIDTH)
    return Bounds(begin, _floor(max(begin, now), width) + width)


def next_width(newest: Newest) -> int:
    """The width at which a partition reaches `TARGET_BYTES` at the present rate of events."""
    if newest.lower is None or newest.size == 0:
        return USUAL_WIDTH
    wanted = (newest.upper - newest.lower) * TARGET_BYTES // newest.size
    return min(MOST_WIDTH, max(LEAST_WIDTH, 1 << max(wanted.bit_length() - 1, 0)))


def _floor(seconds: int, width: int) -> int:
    return seconds // width * width
