"""The outcome of a transaction that was published to several nodes at once.

If one node accepted the bytes, refusals do not matter: the bytes can be mined. If the nonce is too
low for one node, the lane waits for a receipt, whatever the others say. Bytes are refused for good
only if every node answered so, since the operator then signs a self-transfer with their nonce:
neither a lying node nor a silent one may cause that. The same holds for unexplained refusals, which
count as refusals for good once they have lasted for some time.

    any ACCEPTED > any NONCE_TOO_LOW > any UNDERPRICED > any UNKNOWN > any UNAFFORDABLE
    > any REFUSED > any REFUSED_UNEXPLAINED > all REFUSED_FOR_GOOD
"""

from collections.abc import Sequence
from enum import Enum


class PublishOutcome(Enum):
    """UNKNOWN stands for a node that did not answer: it may hold the bytes."""

    ACCEPTED = "accepted"
    NONCE_TOO_LOW = "nonce_too_low"
    UNDERPRICED = "underpriced"
    """The fees are too low for the node, or for replacing its transaction with this nonce."""
    UNAFFORDABLE = "unaffordable"
    REFUSED = "refused"
    """The node does not take it now: its pool is full, an earlier nonce is missing, …"""
    REFUSED_UNEXPLAINED = "refused_unexplained"
    """The node does not take it, and its text does not tell whether it ever will."""
    REFUSED_FOR_GOOD = "refused_for_good"
    """The node will never take these bytes."""
    UNKNOWN = "unknown"
    """The node gave no answer."""


_PRECEDENCE = (
    PublishOutcome.ACCEPTED,
    PublishOutcome.NONCE_TOO_LOW,
    # Before UNKNOWN: a dearer attempt has the same nonce, so it does no harm to the silent node's.
    PublishOutcome.UNDERPRICED,
    PublishOutcome.UNKNOWN,
    PublishOutcome.UNAFFORDABLE,
    PublishOutcome.REFUSED,
    PublishOutcome.REFUSED_UNEXPLAINED,
    PublishOutcome.REFUSED_FOR_GOOD,
)


def merged(outcomes: Sequence[PublishOutcome]) -> PublishOutcome:
    """The outcome that counts, from one outcome per node; UNKNOWN without any."""
    return min(outcomes, key=_PRECEDENCE.index, default=PublishOutcome.UNKNOWN)
