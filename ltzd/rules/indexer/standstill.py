"""Whether the indexer stands still, judged by the time since its last commit. Units: seconds.

The lag in blocks cannot tell: an indexer that stands still, or whose node is frozen, learns of no
newer head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

_LEAST_GAPS = 4
_LARGEST_RATIO = 10.0
"""A gap so many times the median makes a chain irregular. Missed slots and mined chains stay below
it; a chain that mines on demand does not."""


@dataclass(frozen=True, slots=True)
class StandstillPolicy:
    """The indexer stands still after the longer one of a time and a number of block times."""

    least_seconds: float = 60.0
    block_times: float = 10.0


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """`head_number` is the highest block that anything has told of.

    `block_seconds` is the chain's block time, or None for a chain that mines on demand.
    """

    cursor_number: int
    head_number: int
    idle_seconds: float
    block_seconds: float | None

    @property
    def lag_blocks(self) -> int:
        return max(0, self.head_number - self.cursor_number)

    @property
    def lag_seconds(self) -> float | None:
        return None if self.block_seconds is None else self.lag_blocks * self.block_seconds


def stands_still(progress: IndexProgress, policy: StandstillPolicy) -> bool:
    """A chain with a block time owes blocks; another one only those below its head."""
    limit = max(policy.least_seconds, policy.block_times * (progress.block_seconds or 0.0))
    if progress.idle_seconds <= limit:
        return False
    return progress.block_seconds is not None or progress.lag_blocks > 0


def block_seconds(mined_at: Sequence[float]) -> float | None:
    """The mean time between consecutive blocks, or None if they are too few or irregular.

    `mined_at` are the blocks' timestamps, which are whole seconds, the oldest first.
    """
    gaps = [later - earlier for earlier, later in pairwise(mined_at)]
    if len(gaps) < _LEAST_GAPS:
        return None
    # Timestamps are rounded to seconds, so that a gap may appear one second longer.
    is_regular = max(gaps) <= _LARGEST_RATIO * median(gaps) + 1
    return sum(gaps) / len(gaps) if is_regular else None
