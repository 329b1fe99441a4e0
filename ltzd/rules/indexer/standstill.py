"""Whether the indexer stands still, judged by the time since its last commit. Units: seconds.

The lag in blocks does not show this: an indexer that stands still, or whose node is frozen, learns
of no newer head.
"""

import msgspec


class StandstillPolicy(msgspec.Struct, frozen=True):
    """The indexer stands still after the longer one of a time and a number of block times."""

    least_seconds: float = 60.0
    block_times: float = 10.0


class IndexProgress(msgspec.Struct, frozen=True):
    """`head_number` is the highest block that any node has shown, or the cursor's if it is higher.

    `block_seconds` is the chain's block time (`block_times.py`), or None if it has none.
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
    """Without a block time, only blocks below a known head are due."""
    limit = max(policy.least_seconds, policy.block_times * (progress.block_seconds or 0.0))
    if progress.idle_seconds <= limit:
        return False
    return progress.block_seconds is not None or progress.lag_blocks > 0
