"""The largest request that a node accepts, learned from its refusals.

A `Limit` is a size: calls of a batch, bytes of a request, blocks or results of an `eth_getLogs`.
A refusal halves it, or sets it to the size that the node names. Each request of the full size that
succeeds raises it by a step, at most to the double. Below a size that was refused lately the limit
rises by half of the distance at most, and it reaches that very size only after `patience` full-size
successes; each such attempt doubles `patience`. So a node that accepts up to L gets requests
between L/2 and L, and its refusals grow with the logarithm of the number of requests.

The caller keeps one limit for each node and kind of request, and passes the size of each request.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

PATIENCE: Final = 16
MOST_PATIENCE: Final = 4_096


class Limit(msgspec.Struct, frozen=True):
    """`size` is the largest that the next request may be, from 1 to `most`."""

    size: int
    most: int
    step: int
    accepted: int = 0
    """The largest size below `refused` that succeeded, or that the node named."""
    refused: int | None = None
    """The smallest size that was refused lately."""
    successes: int = 0
    """Requests of the full size that succeeded since the limit stands right below `refused`."""
    patience: int = PATIENCE


def limit_from(first: int, most: int | None = None) -> Limit:
    """A limit that begins at `first` and, without `most`, never rises above it."""
    return Limit(first, first if most is None else most, max(1, first // 10))


def after_refusal(limit: Limit, size: int, named: int | None = None) -> Limit:
    """The limit after the node refused a request of `size`; `named` is the size that it allows.

    A named size that does not lie below the refused one is ignored. A refused size of 1 teaches
    nothing about sizes.
    """
    if size <= 1:
        return replace(limit, size=1, successes=0)
    allowed = named if named is not None and 1 <= named < size else None
    refused = size if allowed is None else allowed + 1
    if limit.refused is not None:
        refused = min(limit.refused, refused)
    if allowed is not None:
        accepted = min(allowed, refused - 1)
    else:
        accepted = limit.accepted if limit.accepted < refused else 0  # else the node changed
    return replace(
        limit,
        size=min(limit.size, size // 2 if allowed is None else allowed),
        accepted=accepted,
        refused=refused,
        successes=0,
    )


def after_success(limit: Limit, size: int) -> Limit:
    """The limit after a request of `size` succeeded; only the full size raises it."""
    if size < limit.size:
        return limit
    if limit.refused is None:
        grown = min(limit.most, limit.size + min(limit.step, limit.size))
        return replace(limit, size=grown, accepted=max(limit.accepted, size), patience=PATIENCE)
    accepted = max(limit.accepted, min(size, limit.refused - 1))
    reachable = accepted + (limit.refused - accepted) // 2
    grown = min(limit.most, limit.size + limit.step, reachable)
    if grown > limit.size:
        return replace(limit, size=grown, accepted=accepted, successes=0)
    if limit.successes + 1 < limit.patience:
        return replace(limit, accepted=accepted, successes=limit.successes + 1)
    return replace(
        limit,
        size=min(limit.most, limit.refused),
        accepted=accepted,
        refused=None,
        successes=0,
        patience=min(2 * limit.patience, MOST_PATIENCE),
    )
