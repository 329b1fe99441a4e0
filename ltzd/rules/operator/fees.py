"""What a transaction of ours may pay for gas, and when and by how much it is made dearer.

Units: wei per gas; times in seconds. The cap is never passed: over it work waits without a nonce,
and what has a nonce waits with the fees it has (design.md 5.3).
"""

from dataclasses import dataclass
from enum import Enum

GWEI = 10**9

_RAISE = 10
"""Nodes replace a transaction only by one that pays a tenth more, tip and cap."""


@dataclass(frozen=True, slots=True)
class FeePolicy:
    cap: int = 100 * GWEI
    min_tip: int = GWEI // 10


@dataclass(frozen=True, slots=True)
class Fees:
    max_fee_per_gas: int
    max_priority_fee_per_gas: int


@dataclass(frozen=True, slots=True)
class GasPrice:
    """What the next block asks: its base fee, and the tip that is usual."""

    base_fee: int
    tip: int


def fees_for(gas_price: GasPrice, policy: FeePolicy) -> Fees | None:
    """Fees that outlast six full blocks of growth (2 x base fee), or None while the cap forbids.

    The cap forbids when even the next block's base fee and tip would pass it.
    """
    tip = max(gas_price.tip, policy.min_tip)
    if gas_price.base_fee + tip > policy.cap:
        return None
    return Fees(min(2 * gas_price.base_fee + tip, policy.cap), tip)


def replacement(highest: Fees, gas_price: GasPrice, policy: FeePolicy) -> Fees | None:
    """Fees of the next attempt: a tenth over the highest so far, and what the next block asks.

    None while the cap forbids either. Then the bytes that exist go out again until fees fall.
    """
    asked = fees_for(gas_price, policy)
    fees = asked and Fees(
        max(_raised(highest.max_fee_per_gas), asked.max_fee_per_gas),
        max(_raised(highest.max_priority_fee_per_gas), asked.max_priority_fee_per_gas),
    )
    return fees if fees and fees.max_fee_per_gas <= policy.cap else None


def cancellation(highest: Fees, gas_price: GasPrice, policy: FeePolicy) -> Fees | None:
    """Fees of a self-transfer that takes the nonce of bytes which nodes refuse for good.

    As `replacement`, for the nodes that took the bytes all the same. Where the cap forbids another
    tenth it pays what the cap allows: a node that refused the bytes has nothing to be outbid.
    None while the market is above the cap.
    """
    asked = fees_for(gas_price, policy)
    if asked is None:
        return None
    tip = max(_raised(highest.max_priority_fee_per_gas), asked.max_priority_fee_per_gas)
    at_the_cap = Fees(policy.cap, min(tip, policy.cap))
    return replacement(highest, gas_price, policy) or at_the_cap


def _raised(fee: int) -> int:
    return fee + max(1, -(-fee // _RAISE))


def can_pay(fees: Fees, gas_price: GasPrice, policy: FeePolicy) -> bool:
    """Whether the next block can hold it: its base fee, and a tip that is one, are covered."""
    return fees.max_fee_per_gas >= gas_price.base_fee + policy.min_tip


class BumpReason(Enum):
    """Why a transaction is replaced; a label of metrics."""

    BASE_FEE = "base_fee"
    """It cannot pay the next block's base fee."""
    PASSED_OVER = "passed_over"
    """It can, and yet blocks came without it."""
    REFUSED = "refused"
    """No node takes it at its price."""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long the newest attempt has been waiting, and how many blocks came meanwhile."""

    seconds: float
    blocks: int


@dataclass(frozen=True, slots=True)
class ResubmissionPolicy:
    late_seconds: float = 5.0
    passed_over_seconds: float = 15.0
    passed_over_blocks: int = 3


def bump_reason(
    fees: Fees, wait: Wait, gas_price: GasPrice, policy: FeePolicy, patience: ResubmissionPolicy
) -> BumpReason | None:
    """Why an attempt that a node holds will not be mined by itself; None while it may be.

    Without blocks nothing is mined at any price, so they count beside the seconds.
    """
    if not can_pay(fees, gas_price, policy):
        return BumpReason.BASE_FEE if wait.seconds >= patience.late_seconds else None
    if wait.blocks < patience.passed_over_blocks or wait.seconds < patience.passed_over_seconds:
        return None
    return BumpReason.PASSED_OVER
