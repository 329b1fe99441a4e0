"""A lane's settings, and the names of its kinds and of its reasons to wait."""

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import msgspec

from ltzd.errors import Unavailable
from ltzd.rules.operator.fees import FeePolicy, ResubmissionPolicy
from ltzd.store.operator import wallets
from ltzd.values import Address, Hash32

OnPublished = Callable[[Sequence[UUID], Hash32], None]


class InProcessHooks(msgspec.Struct, frozen=True):
    """Shortcuts between a mint lane and the other roles of its process.

    `on_published` is called with the rewards of a mint and its hash, as soon as a node has taken
    it. `expected_rewards` returns how many rewards are likely to be queued soon. Without hooks both
    sides learn the same from the database, a moment later.
    """

    on_published: OnPublished = lambda _rewards, _hash: None
    expected_rewards: Callable[[], int] = lambda: 0


MINT = "mint"
RELAY = "relay"
TREASURY = "treasury"
"""The kinds of lanes, in rows and metric labels."""

FEES = "fees"
"""A lane's reason to wait: fees are above the cap."""
FUNDS = "funds"
"""A lane's reason to wait: the wallet cannot cover the worst case."""
MINT_LIMIT = "mint_limit"
"""A lane's reason to wait: the mint limit covers none of the queued rewards, or is zero."""
WOULD_REVERT = "would_revert"
"""A lane's reason to wait: LTZ would refuse all of the queued rewards."""
ROLE = wallets.WITHOUT_ROLE
"""A relay lane's reason to wait: its wallet lacks a role on chain. The store reads it, too."""
NODE = "node"
"""A lane's reason to wait: the node does not answer."""
REFUSED = "refused"
"""A lane's reason to wait: nodes refuse its transactions for good."""
PUBLICATION = "publication"
"""A lane's reason to wait: for long, nodes neither take its bytes nor refuse them for good."""
RECEIPTS = "receipts"
"""A lane's reason to wait: all it may have in flight is, and nodes disagree about receipts."""
SIGNER = "signer"
"""A lane's reason to wait: the signer that holds its key does not answer."""
DRAINING = "draining"
"""A lane's reason to sign nothing new: a person drains or retires its wallet."""
BY_HAND = "by_hand"
"""A lane's reason to sign nothing new: a person has paused it."""
RETIRED = "retired"
"""A lane's reason to sign nothing: its wallet is retired, and watched without its key."""
KEY_GONE = "key_gone"
"""A retired wallet's oldest transaction is not mined, and no key can replace it."""
DAY_SPENT = "day_spent"
"""The treasury's reason to wait: its top-ups of the day have reached their bound."""
WATCHED = "watched"
"""The kind of lanes of retired wallets in metrics; their rows keep the wallet's kind."""

COMPARING = "comparing"
"""A lane's reason to sign nothing new: the database may lack its last commits, so it is compared
with the chain."""
FOREIGN_USE = "foreign_use"
"""A lane's reason to sign nothing: something else signs with its wallet's key."""


class PauseBackoff(msgspec.Struct, frozen=True):
    """Pauses that double from the first to the longest, in seconds."""

    first: float
    longest: float


class LanePauses(msgspec.Struct, frozen=True):
    """How long a lane waits before it tries again. Units: seconds.

    `between_terms` and `after_stop` follow the end of a term, `standby` is how long a lane without
    its lease keeps the reason of its last term, `status` is the shortest time between two writes of
    the lane's row. A node that shows a block for `missing_receipt` without the receipt of a
    transaction in it, or a used nonce without the block in which it was used, contradicts itself. A
    receipt waits for `second_opinion` for other nodes that have not reached its block.
    `longest_cancellation` bounds the growing pause before a refused self-transfer is published
    again. A retired wallet's transaction that is not mined for `key_gone` needs a person.
    After a promotion of the database, or a restore, nothing new is signed for `comparing`, in which
    pending transactions that the database lacks show up. `wallet_watch` passes between two
    comparisons of the wallet's nonce with the database's.
    A relay's publication is recorded when it is `publication_record` old, if the relay is not
    mined by then: no caller is told the hash earlier.
    Publications without success, or receipts in dispute, are a reason to wait after `standstill`.
    Bytes that every node refuses without an explanation count as refused for good after
    `unexplained_refusal`: shorter than callers wait for the relays behind them.
    A lane that no node answers for `without_node` leaves the wallet to a process that has a node.
    """

    between_terms: float = 0.5
    after_stop: float = 10.0
    standby: float = 5.0
    status: float = 1.0
    missing_receipt: float = 10.0
    second_opinion: float = 2.0
    longest_cancellation: float = 120.0
    key_gone: float = 300.0
    comparing: float = 10.0
    wallet_watch: float = 5.0
    standstill: float = 10.0
    unexplained_refusal: float = 30.0
    without_node: float = 3.0
    publication_record: float = 2.0
    publication: PauseBackoff = PauseBackoff(0.1, 2.0)
    simulation: PauseBackoff = PauseBackoff(1.0, 16.0)
    signer: PauseBackoff = PauseBackoff(0.5, 8.0)


class LanePolicy(msgspec.Struct, frozen=True):
    """How a lane works.

    `linger_seconds`: how long rewards gather after a signing; `batch_linger_seconds`: how long they
    gather while more rewards are expected.
    `repeat_seconds`: how long a publication may lack a receipt before its bytes go out again.
    `replace_after_seconds`, `replace_after_blocks`: how long, and for how many blocks, before an
    attempt with higher fees goes out.
    `balance_floors`: the balance in wei, by kind, below which a wallet needs gas money.
    `adopts_wallets`: a wallet that the database does not know may have a history (dev chains).
    """

    max_in_flight: int = 64
    poll_seconds: float = 1.0
    linger_seconds: float = 0.005
    batch_linger_seconds: float = 0.2
    repeat_seconds: float = 5.0
    replace_after_seconds: float = 15.0
    replace_after_blocks: int = 3
    fees: FeePolicy = msgspec.field(default_factory=FeePolicy)
    balance_floors: Mapping[str, int] = msgspec.field(default_factory=dict)
    pauses: LanePauses = msgspec.field(default_factory=LanePauses)
    adopts_wallets: bool = False

    @property
    def resubmission(self) -> ResubmissionPolicy:
        return ResubmissionPolicy(
            self.repeat_seconds, self.replace_after_seconds, self.replace_after_blocks
        )


class MintTarget(msgspec.Struct, frozen=True):
    chain_id: int
    ltz: Address


class RelayTarget(msgspec.Struct, frozen=True):
    """`contracts` has the addresses by the contracts' names; without them relays need no role."""

    chain_id: int
    contracts: Mapping[str, Address] = msgspec.field(default_factory=dict)


class Finished(Unavailable):
    """The lane has nothing left to do: its wallet is retired and all it signed is final."""


class HandedOver(Unavailable):
    """No node answers this process, and another one that has a node waits for the lane."""


class Stopped(Unavailable):
    """The lane must not sign before a person has looked into the message."""
