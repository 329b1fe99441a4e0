"""What a lane is told by the settings, and which chain and token it works on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ltzd.errors import Unavailable
from ltzd.rules.operator.fees import FeePolicy, ResubmissionPolicy
from ltzd.values import Address, Hash32

OnPublished = Callable[[Sequence[UUID], Hash32], None]


@dataclass(frozen=True, slots=True)
class InProcessHooks:
    """What a lane and the other roles of its process tell each other, sooner than the database.

    `on_published` is told the hash of rewards whose mint a node just took; `on_the_way` tells how
    many rewards are likely to be queued soon.
    """

    on_published: OnPublished = lambda _rewards, _hash: None
    on_the_way: Callable[[], int] = lambda: 0


MINT = "mint"
RELAY = "relay"
"""The kinds of lanes' work, in rows and metric labels."""

FEES = "fees"
"""A lane's reason to wait: fees are too high for what it may pay."""
BALANCE = "funds"
"""A lane's reason to wait: the wallet cannot cover the worst case."""
MINT_LIMIT = "mint_limit"
"""A lane's reason to wait: the mint limit holds none of the rewards that wait, or is zero."""
WOULD_REVERT = "would_revert"
"""A lane's reason to wait: LTZ would refuse all of the rewards that wait."""
NODE = "node"
"""A lane's reason to wait: the node does not answer."""
REFUSED = "refused"
"""A lane's reason to wait: nodes refuse what it signs for good."""


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """How a lane works.

    `linger_seconds`: for how long a publication counts as under way at least, while rewards gather;
    `batch_linger_seconds`: the same while more of them are on their way.
    `repeat_seconds`: how long a publication may lack a receipt before its bytes go again.
    `replace_after_…`: how long, and for how many blocks, before dearer ones do.
    """

    max_in_flight: int = 64
    poll_seconds: float = 1.0
    linger_seconds: float = 0.005
    batch_linger_seconds: float = 0.2
    repeat_seconds: float = 5.0
    replace_after_seconds: float = 15.0
    replace_after_blocks: int = 3
    fees: FeePolicy = field(default_factory=FeePolicy)

    @property
    def patience(self) -> ResubmissionPolicy:
        return ResubmissionPolicy(
            self.repeat_seconds, self.replace_after_seconds, self.replace_after_blocks
        )


@dataclass(frozen=True, slots=True)
class MintTarget:
    chain_id: int
    ltz: Address


class Stopped(Unavailable):
    """The lane must not sign until a person has looked; the message says at what."""
