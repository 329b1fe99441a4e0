"""Decides without I/O what a lane does about a person's request for one of its transactions.

A speed-up is another attempt of the same intent; a cancellation is a self-transfer with its nonce.
Both pay at least a tenth more than every attempt before, and at least today's price: a node that
holds the older bytes takes no other replacement. Fees never pass the cap.
"""

from enum import Enum

from ltzd.rules.operator.fees import FeePolicy, Fees, GasPrice, replacement
from ltzd.rules.operator.sendable import Obstacle
from ltzd.rules.operator.transactions import State, Transaction

IN_FLIGHT = (State.SIGNED, State.PUBLISHED)
"""The states in which a transaction can be replaced."""


class Action(Enum):
    SPEED_UP = "speed_up"
    CANCEL = "cancel"


class RequestOutcome(Enum):
    """The value is written into the request's row. Each outcome but DONE changes nothing."""

    DONE = "done"
    MINED = "mined"
    """A block holds the transaction, or its nonce was used otherwise."""
    CANCELLED = "cancelled"
    """A self-transfer with its nonce is among its attempts already."""
    FEES = "fees"
    """A tenth more, or today's price, is above the cap."""
    FUNDS = "funds"
    """The wallet cannot cover the worst case of the dearer attempt."""
    REFUSED = "refused"
    """Nodes refuse its bytes for good at any price; the lane cancels it by itself."""
    SIGNER = "signer"
    """The signer of the wallet did not sign."""
    NO_KEY = "no_key"
    """The lane has no key: the wallet is retired."""
    EXPIRED = "expired"
    """No lane carried it out in time."""
    WITHDRAWN = "withdrawn"
    """The command withdrew it before a lane had carried it out."""


def decide(
    action: Action,
    tx: Transaction,
    highest: Fees,
    gas_price: GasPrice,
    policy: FeePolicy,
    *,
    is_rejected: bool,
) -> Fees | RequestOutcome:
    """The fees of the attempt to sign, or the outcome if nothing is to be signed.

    `highest` are the highest fees of its attempts. `is_rejected`: nodes refuse the newest bytes for
    good.
    """
    if tx.state not in IN_FLIGHT:
        return RequestOutcome.MINED
    if action is Action.CANCEL and tx.is_abandoned:
        return RequestOutcome.CANCELLED
    if is_rejected:
        return RequestOutcome.REFUSED
    fees = replacement(highest, gas_price, policy)
    return RequestOutcome.FEES if fees is None else fees


def outcome_of(obstacle: Obstacle) -> RequestOutcome | None:
    """The outcome of a request whose attempt may not be signed; None if it stays open."""
    match obstacle:
        case Obstacle.BLOCK_GAS_UNCONFIRMED:
            return None
        case Obstacle.FEES:
            return RequestOutcome.FEES
        case Obstacle.FUNDS:
            return RequestOutcome.FUNDS
        case Obstacle.BLOCK_GAS | Obstacle.INTRINSIC_GAS:
            return RequestOutcome.REFUSED
