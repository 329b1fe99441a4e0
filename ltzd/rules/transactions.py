"""The life of one transaction of ours, decided without I/O.

    SIGNED -> PUBLISHED -> MINED -> CONFIRMED or REVERTED
       |          ^----------'  (reorg)
       '----------+-> DISPLACED

CONFIRMED, REVERTED and DISPLACED are final: a block past finality says so. DISPLACED means that a
transaction that is not ours used the nonce. An attempt that a node took, or may have taken, keeps
its nonce whatever happens; the same bytes go out again until a receipt or finality decides.
Raises IllegalTransition and changes nothing.
"""

from dataclasses import dataclass, field, replace
from enum import Enum

from ltzd.errors import IllegalTransition
from ltzd.values import Hash32


class State(Enum):
    SIGNED = "signed"
    PUBLISHED = "published"
    MINED = "mined"
    CONFIRMED = "confirmed"
    REVERTED = "reverted"
    DISPLACED = "displaced"


@dataclass(frozen=True, slots=True)
class Bill:
    """Which attempt was mined, and what it cost. The price is in wei per gas."""

    transaction_hash: Hash32
    gas_used: int
    effective_gas_price: int


@dataclass(frozen=True, slots=True)
class Place:
    """The block that holds a transaction, and how the call ended there.

    The bill is known where a receipt told of it, and is no part of what a place is.
    """

    block_number: int
    block_hash: Hash32
    succeeded: bool
    bill: Bill | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Transaction:
    state: State
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A node holds our bytes: it took them now, or knew them already."""


@dataclass(frozen=True, slots=True)
class ReceiptSeen:
    place: Place


@dataclass(frozen=True, slots=True)
class ReceiptLost:
    """The block that held it is no longer canonical, on a node that has passed it."""


@dataclass(frozen=True, slots=True)
class Finalized:
    """The block that holds it is past finality."""


@dataclass(frozen=True, slots=True)
class NonceTaken:
    """The nonce is used up at finality and no receipt exists for any of our attempts."""


Observation = Accepted | ReceiptSeen | ReceiptLost | Finalized | NonceTaken


class Effect(Enum):
    """What the observer does after saving; each is safe to repeat, because a crash repeats it."""

    PUBLISH = "publish"
    """Hand the stored bytes to a node again."""
    REQUEUE = "requeue"
    """Give the rewards of this transaction back to the queue, their references unchanged."""
    ALERT = "alert"
    """A person should look: someone else uses this wallet, or a mint reverted."""


def advance(tx: Transaction, seen: Observation) -> tuple[Transaction, list[Effect]]:
    match tx.state, seen:
        case State.SIGNED | State.PUBLISHED, Accepted():
            return replace(tx, state=State.PUBLISHED), []
        case State.MINED, Accepted():
            return tx, []  # a late answer to an earlier publication
        case State.SIGNED | State.PUBLISHED | State.MINED, ReceiptSeen(place):
            return Transaction(State.MINED, place), []
        case State.MINED, ReceiptLost():
            # The nonce is still ours, so the same bytes go out again.
            return Transaction(State.PUBLISHED), [Effect.PUBLISH]
        case State.MINED, Finalized() if tx.place is not None:
            if tx.place.succeeded:
                return replace(tx, state=State.CONFIRMED), []
            return replace(tx, state=State.REVERTED), [Effect.REQUEUE, Effect.ALERT]
        case State.SIGNED | State.PUBLISHED, NonceTaken():
            return Transaction(State.DISPLACED), [Effect.REQUEUE, Effect.ALERT]
    raise IllegalTransition(f"{tx.state.name} cannot hear {seen}")
