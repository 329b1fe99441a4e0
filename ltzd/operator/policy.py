"""What a mint lane is told by the settings, and which chain and token it works on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ltzd.errors import Unavailable
from ltzd.rules.fees import FeePolicy
from ltzd.values import Address, Hash32

OnPublished = Callable[[Sequence[UUID], Hash32], None]
"""Is told the hash of rewards whose mint a node just took: sooner than through the database."""

MINT = "mint"
"""The kind of this lane's work, in rows and metric labels."""


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """`repeat_seconds`: how long a publication may lack a receipt before its bytes go again."""

    max_in_flight: int = 64
    poll_seconds: float = 1.0
    repeat_seconds: float = 5.0
    fees: FeePolicy = field(default_factory=FeePolicy)


@dataclass(frozen=True, slots=True)
class MintTarget:
    chain_id: int
    ltz: Address


class Stopped(Unavailable):
    """The lane must not sign until a person has looked; the message says at what."""
