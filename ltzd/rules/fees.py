"""What a transaction of ours may pay for gas.

Units: wei per gas. The cap is never passed; over it, work waits without a nonce (design.md 5.3).
"""

from dataclasses import dataclass

GWEI = 10**9


@dataclass(frozen=True, slots=True)
class FeePolicy:
    cap: int = 100 * GWEI
    min_tip: int = GWEI // 10


@dataclass(frozen=True, slots=True)
class Fees:
    max_fee_per_gas: int
    max_priority_fee_per_gas: int


def fees_for(base_fee: int, tip: int, policy: FeePolicy) -> Fees | None:
    """Fees that outlast six full blocks of growth (2 x base fee), or None while the cap forbids.

    The cap forbids when even the next block's base fee and tip would pass it.
    """
    tip = max(tip, policy.min_tip)
    if base_fee + tip > policy.cap:
        return None
    return Fees(min(2 * base_fee + tip, policy.cap), tip)
