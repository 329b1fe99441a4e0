"""The states of one transaction of a lane, decided without I/O.

    SIGNED -> PUBLISHED -> MINED -> CONFIRMED or REVERTED
       |          ^----------'  (reorg)
       |----------+-> DISPLACED    '---> CANCELLED
       '----------+-> VOIDED

CONFIRMED, REVERTED, DISPLACED and CANCELLED are final: a block past finality says so. Only a reorg
below finality, which ltzd follows on dev chains alone, takes CONFIRMED, REVERTED and CANCELLED back
to MINED: if the block is gone, the nonce is unused, and the wallet's later transactions need it.
The rewards of a transaction that REVERTED may be in another one since; LTZ mints each reference
once. DISPLACED means that a transaction which the lane did not sign used the nonce. An attempt that
a node took, or may have taken, keeps its nonce: the same bytes go out again until a receipt or
finality decides.

A transaction whose bytes are refused for good, or that a person cancels, is abandoned: a
self-transfer becomes another attempt with its nonce. If the self-transfer is mined, the transaction
ends CANCELLED, and only then another transaction may do its work. If the call is mined all the
same, the work is done.

A mint is VOIDED if its wallet may not mint at a final block, and has no key that could free the
nonce. Its bytes may still be mined, but LTZ refuses them. Should the wallet get its role back, LTZ
still mints each reference once, and the queued rewards keep theirs: so they are minted once, by the
old bytes or by their next transaction.

Raises IllegalTransition and changes nothing.
"""

from dataclasses import dataclass, field
from enum import Enum

import msgspec
from msgspec.structs import replace

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
    VOIDED = "voided"


class GasCost(msgspec.Struct, frozen=True):
    """The attempt that was mined, and its cost. The price is in wei per gas.

    `l1_fee_wei` is what a rollup took beside the gas.
    """

    transaction_hash: Hash32
    gas_used: int
    effective_gas_price: int
    l1_fee_wei: int = 0


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The block that holds a transaction, and how the call ended there.

    `gas_cost` is known only from a receipt, and two inclusions are equal without it. A cancellation
    is a mined self-transfer: it makes no call, so `succeeded` is False.
    """

    block_number: int
    block_hash: Hash32
    succeeded: bool
    gas_cost: GasCost | None = field(default=None, compare=False)
    is_cancellation: bool = False


class Transaction(msgspec.Struct, frozen=True):
    """`is_abandoned`: a self-transfer is one of the attempts, or will be."""

    state: State
    inclusion: Inclusion | None = None
    is_abandoned: bool = False


class Accepted(msgspec.Struct, frozen=True):
    """A node holds the newest bytes: it took them now, or knew them already."""


class RefusedForGood(msgspec.Struct, frozen=True):
    """A node refuses the newest bytes for a permanent reason."""


class CancelRequested(msgspec.Struct, frozen=True):
    """A person wants the nonce to go to a self-transfer."""


class ReceiptSeen(msgspec.Struct, frozen=True):
    inclusion: Inclusion


class ReceiptLost(msgspec.Struct, frozen=True):
    """The transaction's block is no longer canonical, according to a node that has passed it."""


class Finalized(msgspec.Struct, frozen=True):
    """The transaction's block is past finality.

    `has_skipped`: LTZ has skipped rewards of the mint for ever, because final mints that are not
    ltzd's, such as a thief's, have used their references.
    """

    has_skipped: bool = False


class NonceTaken(msgspec.Struct, frozen=True):
    """The nonce is used at finality, and no attempt has a receipt."""


class MintingRevoked(msgspec.Struct, frozen=True):
    """At a final block LTZ lets the wallet mint nothing, and no attempt has a receipt."""


class FinalityLost(msgspec.Struct, frozen=True):
    """A reorg below finality undid the transaction's block, which was final."""


Observation = (
    Accepted
    | RefusedForGood
    | CancelRequested
    | ReceiptSeen
    | ReceiptLost
    | Finalized
    | FinalityLost
    | NonceTaken
    | MintingRevoked
)


class Effect(Enum):
    """The caller carries effects out after saving; each is safe to repeat after a crash."""

    PUBLISH = "publish"
    """Hand the stored bytes to a node again."""
    CANCEL = "cancel"
    """Sign and store a self-transfer with this nonce, as another attempt, and publish it."""
    REQUEUE = "requeue"
    """Put the rewards of this transaction back into the queue, with the same references."""
    RENEW = "renew"
    """Queue the rewards that LTZ has skipped again, with new references."""
    ALERT = "alert"
    """Alert a person: something else uses this wallet, or a transaction reverted or was refused."""


def advance(tx: Transaction, observation: Observation) -> tuple[Transaction, list[Effect]]:
    match tx.state, observation:
        case State.SIGNED | State.PUBLISHED, Accepted():
            return replace(tx, state=State.PUBLISHED), []
        case State.MINED, Accepted() | RefusedForGood():
            return tx, []  # A late answer to an earlier publication.
        case State.SIGNED | State.PUBLISHED, RefusedForGood() | CancelRequested():
            return _abandoned(tx, is_refused=isinstance(observation, RefusedForGood))
        case State.SIGNED | State.PUBLISHED | State.MINED, ReceiptSeen(inclusion) if (
            tx.is_abandoned or not inclusion.is_cancellation
        ):
            return replace(tx, state=State.MINED, inclusion=inclusion), []
        case State.MINED, ReceiptLost():
            # The nonce is unused again, so the same bytes go out again.
            return replace(tx, state=State.PUBLISHED, inclusion=None), [Effect.PUBLISH]
        case State.MINED, Finalized(has_skipped) if tx.inclusion is not None:
            return _settled(tx, tx.inclusion, has_skipped=has_skipped)
        case State.CONFIRMED | State.REVERTED | State.CANCELLED, FinalityLost():
            # The lane gets a fresh receipt.
            return replace(tx, state=State.MINED), []
        case State.SIGNED | State.PUBLISHED, NonceTaken() | MintingRevoked():
            is_taken = isinstance(observation, NonceTaken)
            over = State.DISPLACED if is_taken else State.VOIDED
            return replace(tx, state=over), [Effect.REQUEUE, Effect.ALERT]
    raise IllegalTransition(f"{tx.state.name} does not allow {observation}")


def _abandoned(tx: Transaction, *, is_refused: bool) -> tuple[Transaction, list[Effect]]:
    if tx.is_abandoned:
        return tx, []  # If the self-transfer is refused too, nothing smaller could take the nonce.
    alert = [Effect.ALERT] if is_refused else []
    return replace(tx, is_abandoned=True), [Effect.CANCEL, *alert]


def _settled(
    tx: Transaction, inclusion: Inclusion, *, has_skipped: bool
) -> tuple[Transaction, list[Effect]]:
    if inclusion.is_cancellation:
        return replace(tx, state=State.CANCELLED), [Effect.REQUEUE]
    if inclusion.succeeded:
        effects = [Effect.RENEW, Effect.ALERT] if has_skipped else []
        return replace(tx, state=State.CONFIRMED), effects
    return replace(tx, state=State.REVERTED), [Effect.REQUEUE, Effect.ALERT]
