"""Compares a node's head with the follower's cursor.

A single node that contradicts the cursor proves nothing: `disputes` decides from all nodes'
answers.
"""

from collections.abc import Mapping, Sequence
from enum import Enum

from ltzd.values import Hash32


class CursorVerdict(Enum):
    CURRENT = "current"
    """The node has no new block."""
    BEHIND = "behind"
    """The node has blocks above the cursor. The first block's parent shows if they continue it."""
    CONTRADICTED = "contradicted"
    """The node has another block at the cursor's height."""
    SHORT = "short"
    """The node has no block at the cursor's height: it is stale, or there was a reorg."""


def compare(
    cursor_number: int, cursor_hash: Hash32, head_number: int, hash_at_cursor: Hash32 | None
) -> CursorVerdict:
    """`hash_at_cursor` is the node's block at the cursor's height, or None if it has none there."""
    if hash_at_cursor is None:
        return CursorVerdict.SHORT
    if hash_at_cursor != cursor_hash:
        return CursorVerdict.CONTRADICTED
    return CursorVerdict.BEHIND if head_number > cursor_number else CursorVerdict.CURRENT


def fork_point(
    indexed: Sequence[tuple[int, Hash32]], of_node: Mapping[int, Hash32]
) -> tuple[int, Hash32] | None:
    """The highest indexed block that the node has too, or None."""
    for number, block_hash in sorted(indexed, reverse=True):
        if of_node.get(number) == block_hash:
            return number, block_hash
    return None


class NoForkReason(Enum):
    """Why a node shows none of the indexed blocks down to the final one."""

    OTHER_CHAIN = "other chain"
    """The node has another genesis: a wrong node, or a dev node that was started afresh."""
    BEHIND = "behind"
    """The node has no block at these heights: it was wiped, or it is syncing."""
    DEEP_REORG = "deep reorg"
    """The node has another branch, which leaves the indexed one below the final block."""


def no_fork_reason(
    genesis: Hash32, genesis_of_node: Hash32 | None, *, shows_others: bool
) -> NoForkReason:
    """`genesis_of_node` is None if the node has no block 0 any more.

    `shows_others`: the node has another block at an indexed height.
    """
    if genesis_of_node not in (None, genesis):
        return NoForkReason.OTHER_CHAIN
    return NoForkReason.DEEP_REORG if shows_others else NoForkReason.BEHIND
