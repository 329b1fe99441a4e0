"""Fees of a lane's transactions, and when and by how much a transaction's fees are raised.

Units: wei per gas; times in seconds. Fees never exceed the cap. If the fees of now would exceed the
cap, new work waits without a nonce, and a transaction with a nonce keeps its fees.

On a chain whose blocks have no base fee a transaction names one gas price. Its `Fees` hold that
price twice, so that caps, replacements and reserves work as on other chains.
"""

from collections.abc import Callable, Sequence
from enum import Enum

import msgspec
from msgspec.structs import replace

from ltzd.rules.nodes.disagreement import prevailing

GWEI = 10**9

_RAISE = 10
"""Nodes take a replacement only if tip and fee cap are at least a tenth higher."""
_BUMPS_LEFT = 3
"""Fees leave room below the cap for this number of raises, unless the next block's fee forbids."""


class FeePolicy(msgspec.Struct, frozen=True):
    """`min_tip` is the least tip, and on a chain without base fees the least gas price."""

    cap: int = 100 * GWEI
    min_tip: int = GWEI // 10


class Fees(msgspec.Struct, frozen=True):
    """`is_legacy`: a transaction of type 0, whose two fees are its one gas price."""

    max_fee_per_gas: int
    max_priority_fee_per_gas: int
    is_legacy: bool = False


class GasPrice(msgspec.Struct, frozen=True):
    """The next block's base fee, and the usual tip.

    On a chain without base fees (`is_legacy`) the base fee is 0, and the tip is the gas price.
    """

    base_fee: int
    tip: int
    is_legacy: bool = False

    @property
    def least(self) -> int:
        """The least price of a transaction in the next block."""
        return self.tip if self.is_legacy else self.base_fee


def fees_for(gas_price: GasPrice, policy: FeePolicy) -> Fees | None:
    """Fees that outlast six full blocks of growth (2 x base fee), or None while the cap forbids.

    The fees leave room for three raises below the cap, so that a transaction which is stuck can be
    replaced. Where even the next block's base fee and tip leave less room, the fees are just these.
    The cap forbids when base fee and tip would pass it.
    """
    tip = max(gas_price.tip, policy.min_tip)
    needed = gas_price.base_fee + tip
    if needed > policy.cap:
        return None
    comfortable = min(needed + gas_price.base_fee, _with_room(policy.cap))
    return Fees(max(needed, comfortable), tip, gas_price.is_legacy)


def _with_room(cap: int) -> int:
    """The highest fee that can be raised `_BUMPS_LEFT` times without passing the cap."""
    for _ in range(_BUMPS_LEFT):
        cap = cap * _RAISE // (_RAISE + 1)
    return cap


def is_implausible(gas_price: GasPrice, policy: FeePolicy) -> bool:
    """Whether other nodes should be asked before the lane pays this price, or waits because of it.

    A price above the cap stops the lane. A tip above ten times the base fee and the least tip
    together is rare. A node may lie about both, and may hide the base fee: a gas price without one
    is paid as a whole.
    """
    if fees_for(gas_price, policy) is None:
        return True
    return gas_price.tip > 10 * (gas_price.base_fee + policy.min_tip)


def are_far_apart(first: GasPrice, second: GasPrice, policy: FeePolicy) -> bool:
    """Whether one of these base fees must be false: six full blocks only double a base fee.

    A chain has base fees or has none. Tips, and gas prices without a base fee, are a node's
    suggestions, and differ.
    """
    if first.is_legacy != second.is_legacy:
        return True
    lower, higher = sorted((first.base_fee, second.base_fee))
    return higher > 2 * lower + policy.min_tip


def with_lowest_tip(gas_price: GasPrice, others: Sequence[GasPrice]) -> GasPrice:
    """The price with the lowest tip that any node gave: one node's absurd tip has no effect.

    A gas price without a base fee is no tip, and stays: a lower one may never be mined.
    """
    if gas_price.is_legacy:
        return gas_price
    tips = (price.tip for price in others if not price.is_legacy)
    return replace(gas_price, tip=min([gas_price.tip, *tips]))


def highest_payable(policy: FeePolicy) -> Callable[[GasPrice], tuple[bool, bool, int]]:
    """Rank prices within the cap first, then those with a base fee, whose excess is not paid."""
    return lambda price: (fees_for(price, policy) is not None, not price.is_legacy, price.least)


def price_among(prices: Sequence[GasPrice], policy: FeePolicy) -> GasPrice:
    """The price among several nodes' prices for a transaction that is sent only once.

    Of two prices the higher one within the cap counts: a lower one may never be mined, and what a
    base fee exceeds is not paid. An absurd tip has no effect.
    """
    price = prevailing(prices, highest_payable(policy))
    return with_lowest_tip(price, prices) if is_implausible(price, policy) else price


def replacement(highest: Fees, gas_price: GasPrice, policy: FeePolicy) -> Fees | None:
    """Fees of the next attempt: those for now, and at least a tenth over the highest so far.

    Returns None while the cap forbids either. The newest bytes go out again until fees fall.
    """
    current = fees_for(gas_price, policy)
    if current is None:
        return None
    max_fee = max(_raised(highest.max_fee_per_gas), current.max_fee_per_gas)
    tip = max(_raised(highest.max_priority_fee_per_gas), current.max_priority_fee_per_gas)
    if max_fee > policy.cap:
        return None
    return Fees(max_fee, max_fee if current.is_legacy else tip, current.is_legacy)


def cancellation(highest: Fees, gas_price: GasPrice, policy: FeePolicy) -> Fees | None:
    """Fees of a self-transfer that takes the nonce of bytes which nodes refuse for good.

    They are those of `replacement`, for the nodes that took the bytes all the same. Where the cap
    forbids another tenth they are the cap: a node that refused the bytes has nothing to replace.
    Returns None while the gas price is above the cap.
    """
    current = fees_for(gas_price, policy)
    if current is None:
        return None
    tip = max(_raised(highest.max_priority_fee_per_gas), current.max_priority_fee_per_gas)
    tip_at_the_cap = policy.cap if current.is_legacy else min(tip, policy.cap)
    at_the_cap = Fees(policy.cap, tip_at_the_cap, current.is_legacy)
    return replacement(highest, gas_price, policy) or at_the_cap


def _raised(fee: int) -> int:
    return fee + max(1, -(-fee // _RAISE))


def can_pay(fees: Fees, gas_price: GasPrice, policy: FeePolicy) -> bool:
    """Whether the fees cover the next block's base fee and the least tip."""
    return fees.max_fee_per_gas >= gas_price.base_fee + policy.min_tip


class BumpReason(Enum):
    """Why a transaction is replaced; a label of metrics."""

    BASE_FEE = "base_fee"
    """The transaction cannot pay the next block's base fee."""
    PASSED_OVER = "passed_over"
    """The transaction could pay, and yet blocks came without it."""
    REFUSED = "refused"
    """No node takes the transaction at its price."""
    BY_HAND = "by_hand"
    """A person asked for it (`ltzd tx speed-up`)."""


class Waited(msgspec.Struct, frozen=True):
    """How long the newest attempt has been waiting, and how many blocks came meanwhile."""

    seconds: float
    blocks: int


class ResubmissionPolicy(msgspec.Struct, frozen=True):
    late_seconds: float = 5.0
    passed_over_seconds: float = 15.0
    passed_over_blocks: int = 3


def bump_reason(
    fees: Fees,
    waited: Waited,
    gas_price: GasPrice,
    policy: FeePolicy,
    resubmission: ResubmissionPolicy,
) -> BumpReason | None:
    """Why an attempt that a node holds will not be mined by itself, or None while it may be.

    Seconds alone do not count against an attempt that can pay: without blocks nothing is mined at
    any price.
    """
    if not can_pay(fees, gas_price, policy):
        return BumpReason.BASE_FEE if waited.seconds >= resubmission.late_seconds else None
    if (
        waited.blocks < resubmission.passed_over_blocks
        or waited.seconds < resubmission.passed_over_seconds
    ):
        return None
    return BumpReason.PASSED_OVER
