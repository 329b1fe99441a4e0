"""Judges this machine's clock against the database's and against the newest block's time.

Times are Unix seconds. A block from the clock's future proves that the clock is behind. An old
block proves nothing: the chain or the node may have stopped. Only a block that arrives while the
process watches can prove that the clock is ahead.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from ltzd.rules.checks.findings import Finding, fault, ok, warning

MOST_SECONDS = 30.0
"""A clock that differs by more is a fault."""
_REMEDY = "set this machine's clock, for example with chrony or systemd-timesyncd"
_REGULAR_GAP_SECONDS = 20.0
"""The longest time between two blocks of a chain that is called regular."""
_CATCHES_UP_FACTOR = 4.0


class BlockSighting(msgspec.Struct, frozen=True):
    """The newest block of a node: its height and time, and this machine's time of the answer."""

    number: int
    timestamp: int
    seen_at: float

    @property
    def age(self) -> float:
        return self.seen_at - self.timestamp


def judge_database(own: float, database: float) -> Finding:
    difference = own - database
    if abs(difference) <= MOST_SECONDS:
        return ok("clock", "This machine's clock agrees with the database's.")
    return fault(
        "clock",
        f"This machine's clock is {abs(difference):.0f} s {_side(difference)} the database's: "
        f"{_REMEDY}, or the database server's.",
    )


def is_regular(timestamps: Sequence[int]) -> bool:
    """Whether blocks with these times, in order, come regularly; needs several blocks."""
    gaps = [later - earlier for earlier, later in pairwise(timestamps)]
    return len(gaps) >= 4 and max(gaps) <= _REGULAR_GAP_SECONDS and timestamps[-1] > timestamps[0]


def judge_newest(block: BlockSighting, node: str) -> Finding | None:
    """The finding, or None for an old block, which only a later answer can judge."""
    if block.age < -MOST_SECONDS:
        return fault(
            "clock",
            f"This machine's clock is {-block.age:.0f} s behind the newest block of the node "
            f"{node}: {_REMEDY}.",
        )
    if block.age <= MOST_SECONDS:
        return ok("clock", f"This machine's clock agrees with the newest block of {node}.")
    return None


def judge_second_reading(
    first: BlockSighting, second: BlockSighting, block_seconds: float, node: str
) -> Finding:
    """Judge by a later answer of the same node; `block_seconds` is the mean between blocks."""
    grown = second.number - first.number
    expected = (second.seen_at - first.seen_at) / max(block_seconds, 0.1)
    if grown <= 0:
        return warning(
            "clock",
            f"The newest block of the node {node} is {second.age:.0f} s old and no newer one came: "
            f"the chain or the node has stopped, or this machine's clock is ahead; {_REMEDY}.",
        )
    if grown > _CATCHES_UP_FACTOR * expected + 2:
        return warning(
            "clock",
            f"The node {node} is {second.age:.0f} s behind and catches up: the clock could not be "
            "compared with it.",
        )
    if second.age > MOST_SECONDS:
        return fault(
            "clock",
            f"This machine's clock is {second.age:.0f} s ahead of the newest block of the node "
            f"{node}: {_REMEDY}.",
        )
    return ok("clock", f"This machine's clock agrees with the newest block of {node}.")


def _side(difference: float) -> str:
    return "ahead of" if difference > 0 else "behind"
