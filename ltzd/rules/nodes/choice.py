"""Ranks several nodes: the first one is asked first.

A node comes after all others if it is distrusted, if its circuit is open, if it is behind, or if it
refuses requests because there are too many. A request reaches such a node only if no better one is
left. Of distrusted nodes the one whose last contradiction is the oldest comes first: the other lies
now. Among equals the node in use stays first, unless another answers much faster, so that the
requests of one decision see one view of the chain.
"""

from collections.abc import Sequence

import msgspec


class ChoicePolicy(msgspec.Struct, frozen=True):
    """`tolerance_blocks`: a node so far below the credible height is not yet behind."""

    tolerance_blocks: int = 2
    sticky_factor: float = 2.0
    sticky_seconds: float = 0.05
    """The node in use stays first up to `sticky_factor` times the best latency plus this."""


class NodeObservation(msgspec.Struct, frozen=True):
    """The pool's knowledge of one node. `height` and latency are None before its first answer.

    `contradicted_at` is when the node last contradicted itself or others, in seconds.
    """

    height: int | None = None
    latency_seconds: float | None = None
    is_open: bool = False
    is_distrusted: bool = False
    is_limited: bool = False
    contradicted_at: float = 0.0


def credible_height(heights: Sequence[int], tolerance_blocks: int) -> int:
    """The height that nodes are measured against; 0 without any height.

    With three nodes or more, a single node far ahead of all others is not believed: one liar must
    not make the honest nodes look behind. Of two nodes the higher one is believed, since nodes that
    lag are far more common than nodes that lie; the pool examines such a lead.
    """
    highest = sorted(heights, reverse=True)[:2]
    if not highest:
        return 0
    if len(heights) >= 3 and highest[0] - highest[1] > tolerance_blocks:
        return highest[1]
    return highest[0]


def is_behind(height: int | None, credible: int, tolerance_blocks: int) -> bool:
    return height is None or height < credible - tolerance_blocks


def ranking(
    nodes: Sequence[NodeObservation], in_use: int | None, policy: ChoicePolicy
) -> list[int]:
    """The positions of all nodes, the best first; `in_use` is the position of the last choice."""
    trusted = [node.height for node in nodes if node.height is not None and not node.is_distrusted]
    credible = credible_height(trusted, policy.tolerance_blocks)
    latencies = [
        node.latency_seconds
        for node in nodes
        if node.latency_seconds is not None and not any(_class(node, credible, policy))
    ]
    sticky_until = min(latencies, default=0.0) * policy.sticky_factor + policy.sticky_seconds

    def key(position: int) -> tuple[object, ...]:
        node = nodes[position]
        latency = node.latency_seconds
        stays = position == in_use and (latency is None or latency <= sticky_until)
        return (
            *_class(node, credible, policy),
            node.is_distrusted and node.contradicted_at,
            not stays,
            latency is None,
            latency or 0.0,
            position,
        )

    return sorted(range(len(nodes)), key=key)


def _class(
    node: NodeObservation, credible: int, policy: ChoicePolicy
) -> tuple[bool, bool, bool, bool]:
    """Sort nodes into classes; the latency of a lower class never outweighs a higher class."""
    behind = is_behind(node.height, credible, policy.tolerance_blocks)
    return node.is_distrusted, node.is_open, behind, node.is_limited
