"""How many blocks the next partition of a table holds.

Units: blocks and bytes. Widths are powers of two and bounds their multiples, so that the bounds of
several tables mostly meet.
"""

from typing import Final

USUAL_WIDTH: Final = 2**20
"""The width of a partition after an empty one."""
LEAST_WIDTH: Final = 2**16
MOST_WIDTH: Final = 2**24
TARGET_BYTES: Final = 2**30
"""The intended size of a partition's rows, without indexes."""


def next_width(blocks: int, size: int) -> int:
    """The width at which a partition reaches `TARGET_BYTES` at the chain's present rate.

    `size` is that of the partition before, whose rows spread over `blocks` blocks. Returns at most
    the power of two that keeps the partition below the target.
    """
    if blocks == 0 or size == 0:
        return USUAL_WIDTH
    wanted = blocks * TARGET_BYTES // size
    return min(MOST_WIDTH, max(LEAST_WIDTH, 1 << max(wanted.bit_length() - 1, 0)))


def upper_bound(last: int, width: int) -> int:
    """The first multiple of the width above the block `last`."""
    return (last // width + 1) * width
