"""Whether a transaction may be signed: a wallet waits for ever behind bytes that no node takes.

Units: gas; wei per gas; wei. Transactions of ours carry no access list and create no contract.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ltzd.rules.operator.fees import Fees

TRANSACTION_GAS: Final = 21_000
"""A transaction without data, such as a self-transfer, costs exactly this."""
TRANSACTION_GAS_CAP: Final = 2**24
"""EIP-7825: no transaction may have a higher gas limit, whatever a block holds."""

_GAS_PER_TOKEN: Final = 4
_FLOOR_PER_TOKEN: Final = 10
_TOKENS_PER_BYTE: Final = 4


class Obstacle(Enum):
    """Why a transaction may not be signed; the value is a lane's reason to wait."""

    INTRINSIC_GAS = "intrinsic_gas"
    """Its gas limit does not pay for its own data."""
    BLOCK_GAS = "block_gas_limit"
    """Its gas limit is above what the newest block, or any, may hold."""
    FEES = "fees"
    """Its fees are above the cap, or contradict each other."""
    FUNDS = "funds"
    """The wallet does not cover its worst case beside everything in flight."""

    @property
    def is_permanent(self) -> bool:
        """Whether another time would not help: the transaction itself must be another."""
        return self in {Obstacle.INTRINSIC_GAS, Obstacle.BLOCK_GAS}


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds when a transaction is signed.

    `block_gas_limit` is the newest block's, None on a chain that tells none; `funds_wei` is the
    balance less what everything else in flight can cost.
    """

    block_gas_limit: int | None
    fee_cap: int
    funds_wei: int


def min_gas_limit(data: bytes) -> int:
    """Below this gas limit nodes refuse a transaction with this data.

    The higher of its intrinsic gas (EIP-2028) and the floor of its data (EIP-7623), also on chains
    that do not have the floor yet.
    """
    return TRANSACTION_GAS + _FLOOR_PER_TOKEN * _tokens_in(data)


def intrinsic_gas(data: bytes) -> int:
    """What any chain charges before it runs the call (EIP-2028)."""
    return TRANSACTION_GAS + _GAS_PER_TOKEN * _tokens_in(data)


def most_gas(block_gas_limit: int | None) -> int:
    """The highest gas limit that nodes take."""
    return min(TRANSACTION_GAS_CAP, block_gas_limit or TRANSACTION_GAS_CAP)


def obstacle(gas_limit: int, data: bytes, fees: Fees, limits: Limits) -> Obstacle | None:
    """The first thing that stands against signing a call; None if nothing does."""
    if gas_limit < min_gas_limit(data):
        return Obstacle.INTRINSIC_GAS
    if gas_limit > most_gas(limits.block_gas_limit):
        return Obstacle.BLOCK_GAS
    if not fees.max_priority_fee_per_gas <= fees.max_fee_per_gas <= limits.fee_cap:
        return Obstacle.FEES
    if gas_limit * fees.max_fee_per_gas > limits.funds_wei:
        return Obstacle.FUNDS
    return None


def _tokens_in(data: bytes) -> int:
    """EIP-7623: a zero byte is one token, any other byte four."""
    return _TOKENS_PER_BYTE * len(data) - (_TOKENS_PER_BYTE - 1) * data.count(0)
