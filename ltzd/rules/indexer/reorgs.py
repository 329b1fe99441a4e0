"""Compares a node's head with the follower's cursor: decides whether the chain was reorganised.

Another hash at the cursor's height is a reorg. A head below the cursor is a stale node at first,
and a reorg if the node still has no block at the cursor's height some seconds later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ltzd.values import Hash32

SECOND_LOOK_SECONDS = 2.0


class CursorVerdict(Enum):
    CURRENT = "current"
    """The node has no new block."""
    BEHIND = "behind"
    """The node has blocks above the cursor. The first block's parent shows if they continue it."""
    REORGED = "reorged"
    """The cursor's block is no longer canonical."""
    STALE = "stale"
    """The node is behind the cursor, or there may be a reorg: ask again later."""


@dataclass(frozen=True, slots=True)
class HeadObservation:
    """A node's head, and its block at the cursor's height, or None if it has none there."""

    head_number: int
    hash_at_cursor: Hash32 | None
    at_seconds: float


def compare(
    cursor_number: int,
    cursor_hash: Hash32,
    head: HeadObservation,
    first_short: float | None,
    second_look_seconds: float = SECOND_LOOK_SECONDS,
) -> CursorVerdict:
    """`first_short` is when the head was first below the cursor, on the clock of `head`.

    A head that is still below it `second_look_seconds` later is a reorg.
    """
    if head.hash_at_cursor is not None:
        if head.hash_at_cursor != cursor_hash:
            return CursorVerdict.REORGED
        return CursorVerdict.BEHIND if head.head_number > cursor_number else CursorVerdict.CURRENT
    if first_short is not None and head.at_seconds - first_short >= second_look_seconds:
        return CursorVerdict.REORGED
    return CursorVerdict.STALE


def fork_point(
    indexed: Sequence[tuple[int, Hash32]], of_node: Mapping[int, Hash32]
) -> tuple[int, Hash32] | None:
    """The highest indexed block that the node has too, or None."""
    for number, block_hash in sorted(indexed, reverse=True):
        if of_node.get(number) == block_hash:
            return number, block_hash
    return None
