"""The life of one transaction of ours, decided without I/O.

    SIGNED -> PUBLISHED -> MINED -> CONFIRMED or REVERTED
       |          ^----------'  (reorg)
       '----------+-> DISPLACED    '---> CANCELLED

CONFIRMED, REVERTED, DISPLACED and CANCELLED are final: a block past finality says so. DISPLACED
means that a transaction that is not ours used the nonce. An attempt that a node took, or may have
taken, keeps its nonce whatever happens; the same bytes go out again until a receipt or finality
decides. A transaction whose bytes are refused for good is abandoned: a self-transfer is another
attempt with its nonce. If the self-transfer is the one that is mined, it ends CANCELLED, and only
then its work may be done by another transaction; if the call is mined all the same, it is done.
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
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class GasCost:
    """Which attempt was mined, and what it cost. The price is in wei per gas."""

    transaction_hash: Hash32
    gas_used: int
    effective_gas_price: int


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The block that holds a transaction, and how the call ended there.

    The bill is known where a receipt told of it, and is no part of what a place is. A cancellation
    is a mined self-transfer: it makes no call, so `succeeded` is False.
    """

    block_number: int
    block_hash: Hash32
    succeeded: bool
    gas_cost: GasCost | None = field(default=None, compare=False)
    is_cancellation: bool = False


@dataclass(frozen=True, slots=True)
class Transaction:
    """`is_abandoned`: a self-transfer is among its attempts, or is to be."""

    state: State
    inclusion: Inclusion | None = None
    is_abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """A node holds our bytes: it took them now, or knew them already."""


@dataclass(frozen=True, slots=True)
class RefusedForGood:
    """A node refuses our newest bytes for a reason that will not pass."""


@dataclass(frozen=True, slots=True)
class ReceiptSeen:
    inclusion: Inclusion


@dataclass(frozen=True, slots=True)
class ReceiptLost:
    """The block that held it is no longer canonical, on a node that has passed it."""


@dataclass(frozen=True, slots=True)
class Finalized:
    """The block that holds it is past finality."""


@dataclass(frozen=True, slots=True)
class NonceTaken:
    """The nonce is used up at finality and no receipt exists for any of our attempts."""


Observation = Accepted | RefusedForGood | ReceiptSeen | ReceiptLost | Finalized | NonceTaken


class Effect(Enum):
    """What the observer does after saving; each is safe to repeat, because a crash repeats it."""

    PUBLISH = "publish"
    """Hand the stored bytes to a node again."""
    CANCEL = "cancel"
    """Sign and store a self-transfer with this nonce, as another attempt, and publish it."""
    REQUEUE = "requeue"
    """Give the rewards of this transaction back to the queue, their references unchanged."""
    ALERT = "alert"
    """A person should look: someone else uses this wallet, or a mint reverted."""


def advance(tx: Transaction, seen: Observation) -> tuple[Transaction, list[Effect]]:
    match tx.state, seen:
        case State.SIGNED | State.PUBLISHED, Accepted():
            return replace(tx, state=State.PUBLISHED), []
        case State.MINED, Accepted() | RefusedForGood():
            return tx, []  # a late answer to an earlier publication
        case State.SIGNED | State.PUBLISHED, RefusedForGood() if tx.is_abandoned:
            return tx, []  # the self-transfer itself: there is nothing smaller to try
        case State.SIGNED | State.PUBLISHED, RefusedForGood():
            return replace(tx, is_abandoned=True), [Effect.CANCEL, Effect.ALERT]
        case State.SIGNED | State.PUBLISHED | State.MINED, ReceiptSeen(inclusion) if (
            tx.is_abandoned or not inclusion.is_cancellation
        ):
            return replace(tx, state=State.MINED, inclusion=inclusion), []
        case State.MINED, ReceiptLost():
            # The nonce is still ours, so the same bytes go out again.
            return replace(tx, state=State.PUBLISHED, inclusion=None), [Effect.PUBLISH]
        case State.MINED, Finalized() if tx.inclusion is not None:
            return _settled(tx, tx.inclusion)
        case State.SIGNED | State.PUBLISHED, NonceTaken():
            return replace(tx, state=State.DISPLACED), [Effect.REQUEUE, Effect.ALERT]
    raise IllegalTransition(f"{tx.state.name} cannot hear {seen}")


def _settled(tx: Transaction, inclusion: Inclusion) -> tuple[Transaction, list[Effect]]:
    if inclusion.is_cancellation:
        return replace(tx, state=State.CANCELLED), [Effect.REQUEUE]
    if inclusion.succeeded:
        return replace(tx, state=State.CONFIRMED), []
    return replace(tx, state=State.REVERTED), [Effect.REQUEUE, Effect.ALERT]
