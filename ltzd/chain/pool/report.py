"""The state of each node of a pool, for status pages, metrics and alarms."""

from collections.abc import Mapping
from enum import Enum

import msgspec


class Unfit(Enum):
    """Why a node is not used, or only when no better one is left. A closed set for labels."""

    UNVERIFIED = "unverified"
    """The node has not answered yet, so its chain is not known."""
    OTHER_CHAIN = "other_chain"
    """Chain id or genesis differ from the database's or the settings': never used."""
    NO_CONTRACT = "no_contract"
    """LTZ's code is missing there or differs from that of a majority: never used."""
    UNREACHABLE = "unreachable"
    """The node refuses connections or answers nothing that makes sense."""
    HUNG = "hung"
    """The node accepts requests and never answers."""
    RATE_LIMITED = "rate_limited"
    """The node has refused requests of the last seconds because there are too many."""
    BEHIND = "behind"
    """The node's head is below the other nodes'."""
    DISAGREES = "disagrees"
    """The node contradicts the other nodes, or itself."""

    @property
    def excludes(self) -> bool:
        """Whether nothing is read from the node, even if no other is left."""
        return self in {Unfit.OTHER_CHAIN, Unfit.NO_CONTRACT}


class NodeReport(msgspec.Struct, frozen=True):
    """`name` is host and port, without path and credentials; `is_preferred` means in use now.

    `seconds_since_answer` is None before the first answer. `errors` counts by kind since the start
    of the process.
    """

    name: str
    is_usable: bool
    is_preferred: bool
    reason: Unfit | None
    height: int | None
    latency_seconds: float | None
    seconds_since_answer: float | None
    in_flight: int
    errors: Mapping[str, int]
    detail: str
    """The newest fault in words, or empty."""
