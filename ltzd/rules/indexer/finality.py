"""The newest final block, by the `finalized` tags of the nodes and ltzd's own rule.

Own rule: a block is final once it is deep enough and was seen long enough ago (`final_depth` and
`final_seconds` of the settings). If there are several nodes, a height that only one of them claims
counts only as far as the own rule allows. So a node with a `finalized` far ahead of the others'
finalizes nothing, and a node whose `finalized` does not move delays nothing.
"""

from collections.abc import Sequence


def is_plausible(claim: int | None, head_number: int) -> bool:
    """False for a node whose `finalized` is above its own head."""
    return claim is None or claim <= head_number


def final_height(claims: Sequence[int | None], by_own_rule: int | None) -> int | None:
    """`claims` holds the `finalized` of each node, or None for a node that tells none.

    Returns None if no node claims any.
    """
    heights = sorted((claim for claim in claims if claim is not None), reverse=True)
    if not heights or len(claims) == 1:
        return heights[0] if heights else None
    confirmed = min(heights[0], by_own_rule if by_own_rule is not None else -1)
    if len(heights) > 1:
        confirmed = max(confirmed, heights[1])
    return confirmed if confirmed >= 0 else None
