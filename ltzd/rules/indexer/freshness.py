"""Whether the index is recent enough to be asked instead of a node. Units: blocks and seconds.

An answer of the index is only a first check: a call that passes is simulated on a node before it is
sent. A fresh index is at most some blocks behind, so its answer may ignore what changed in these
blocks. An index is not asked while it is stopped, catching up, or not written to.
"""

from typing import Final

from ltzd.rules.indexer.standstill import IndexProgress, StandstillPolicy, stands_still

FRESH_SECONDS: Final = 10.0
"""How far behind the head a fresh index may be, and how long it may be without a block."""
_FRESH_BLOCKS: Final = 2
"""Slow chains: two blocks count as fresh, however long they take."""
_STANDSTILL: Final = StandstillPolicy(least_seconds=FRESH_SECONDS, block_times=3.0)


def is_fresh(progress: IndexProgress, *, is_stopped: bool) -> bool:
    """Whether the index may be asked instead of a node.

    On a chain without a block time no block is due, so its index may be idle for any time.
    """
    if is_stopped or stands_still(progress, _STANDSTILL):
        return False
    lag_seconds = progress.lag_seconds
    is_recent = lag_seconds is not None and lag_seconds <= FRESH_SECONDS
    return is_recent or progress.lag_blocks <= _FRESH_BLOCKS
