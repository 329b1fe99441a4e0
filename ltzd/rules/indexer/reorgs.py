"""What a node's head means to a follower that has come to a cursor: decided without I/O.

A known hash is a stale node, not a reorg; another hash at the same height is one. A head below the
cursor is a stale node until a second look, some seconds later, still finds the cursor's block gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ltzd.values import Hash32

SECOND_LOOK_SECONDS = 2.0


class CursorVerdict(Enum):
    CURRENT = "current"
    """Nothing new."""
    BEHIND = "behind"
    """Blocks wait above the cursor; whether they continue it shows in the first one's parent."""
    REORGED = "reorged"
    """The cursor's block is no longer canonical."""
    STALE = "stale"
    """The node is behind us, or not yet proven to be right: look again."""


@dataclass(frozen=True, slots=True)
class HeadObservation:
    """One look at a node: its head, and its block at the cursor's height (None: it has none)."""

    head_number: int
    hash_at_cursor: Hash32 | None
    at_seconds: float


def judge(
    cursor_number: int, cursor_hash: Hash32, look: HeadObservation, first_short: float | None
) -> CursorVerdict:
    """`first_short`: when the head was first seen below the cursor, in the time of `look`."""
    if look.hash_at_cursor is not None:
        if look.hash_at_cursor != cursor_hash:
            return CursorVerdict.REORGED
        return CursorVerdict.BEHIND if look.head_number > cursor_number else CursorVerdict.CURRENT
    if first_short is not None and look.at_seconds - first_short >= SECOND_LOOK_SECONDS:
        return CursorVerdict.REORGED
    return CursorVerdict.STALE


def fork_point(
    ours: Sequence[tuple[int, Hash32]], theirs: Mapping[int, Hash32]
) -> tuple[int, Hash32] | None:
    """The highest of our blocks that the node holds too; None when none of these is."""
    for number, block_hash in sorted(ours, reverse=True):
        if theirs.get(number) == block_hash:
            return number, block_hash
    return None
