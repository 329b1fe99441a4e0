"""How many blocks the backfill asks for at once, so that an answer has about a given size.

Units: blocks, and bytes of JSON. Chains have quiet and busy times, so the next size follows from
the last answer, and grows fourfold at most.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

TARGET_BYTES: Final = 1024 * 1024
"""Decoding an answer of this size takes some milliseconds, during which no other task runs."""
FIRST_BLOCKS: Final = 64
_LARGEST_GROWTH: Final = 4


class RangeSize(msgspec.Struct, frozen=True):
    """`most` is the longest range of all."""

    most: int
    blocks: int = FIRST_BLOCKS
    target_bytes: int = TARGET_BYTES

    def after(self, blocks: int, size: int) -> "RangeSize":
        """The size of the next range, after `blocks` blocks had logs of `size` bytes."""
        fitting = blocks * self.target_bytes // max(1, size)
        longest = max(blocks, self.blocks) * _LARGEST_GROWTH
        return replace(self, blocks=max(1, min(fitting, longest, self.most)))
