"""Decides when the rewards of a patient brand stop waiting for a cheaper block.

A brand file's `patience_seconds` lets the brand's rewards wait for blocks with a lower base fee.
The next block is cheap enough if its base fee is among the lowest of the recent blocks. At first
only the lowest tenth is cheap enough, later a growing part, and at the end of the wait every base
fee. So a wait ends at its bound, whatever the fees, and earlier if more waiting would save little.

Units: wei per gas, seconds.
"""

from bisect import bisect_left
from enum import Enum
from typing import Final

import msgspec

RECENT_BLOCKS: Final = 1_024
"""The number of recent blocks: nodes return the base fees of 1,024 blocks in one answer."""
MOST_PATIENCE_SECONDS: Final = 86_400
"""The largest `patience_seconds` of a brand file."""
LEAD_SECONDS: Final = 5.0
"""Waits end this time before their bound, so that a lane notices the end in time."""
_KNOWN_BLOCKS: Final = 16
"""With fewer base fees it is unknown whether a fee is low."""
_FIRST_SHARE: Final = 0.1


class FeeWindow(msgspec.Struct, frozen=True):
    """`recent` are the base fees of the recent blocks, the lowest first."""

    recent: tuple[int, ...]
    next_base_fee: int

    @property
    def share_cheaper(self) -> float:
        """The share of the recent blocks that were cheaper than the next block will be."""
        return bisect_left(self.recent, self.next_base_fee) / len(self.recent)


class Release(Enum):
    """Why rewards wait no longer; a label of metrics."""

    CHEAP = "cheap"
    """The next block is cheap, for a wait of this length."""
    BOUND = "bound"
    """The wait is at its end."""
    UNKNOWN = "unknown"
    """The chain has no base fees, or too few are known: waiting promises nothing."""


def release(
    patience_seconds: float, waited_seconds: float, fees: FeeWindow | None
) -> Release | None:
    """Why a brand's rewards may be minted now, or None while they wait for a cheaper block.

    `waited_seconds` is the age of the brand's oldest reward. A negative age ends the wait: the
    clock was set back, so the true age is unknown.
    """
    longest = patience_seconds - LEAD_SECONDS
    if waited_seconds < 0 or waited_seconds >= longest:
        return Release.BOUND
    if fees is None or len(fees.recent) < _KNOWN_BLOCKS:
        return Release.UNKNOWN
    accepted = _FIRST_SHARE + (1 - _FIRST_SHARE) * (waited_seconds / longest) ** 2
    return Release.CHEAP if fees.share_cheaper <= accepted else None
