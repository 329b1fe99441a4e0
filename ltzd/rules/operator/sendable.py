"""Decides whether a transaction may be signed: bytes that no node accepts would block their wallet.

Units: gas; wei per gas; wei. A lane's transactions carry no access list and create no contract.
"""

from enum import Enum
from typing import Final

import msgspec

from ltzd.rules.operator.fees import Fees

TRANSACTION_GAS: Final = 21_000
"""The exact cost of a transaction without data, such as a self-transfer."""
TRANSACTION_GAS_CAP: Final = 2**24
"""EIP-7825: no transaction may have a higher gas limit, whatever a block holds."""

_GAS_PER_TOKEN: Final = 4
_FLOOR_PER_TOKEN: Final = 10
_TOKENS_PER_BYTE: Final = 4


class Obstacle(Enum):
    """Why a transaction may not be signed; the value is a lane's reason to wait."""

    INTRINSIC_GAS = "intrinsic_gas"
    """The gas limit does not pay for the transaction's own data."""
    BLOCK_GAS = "block_gas_limit"
    """The gas limit is above what the newest block, or any, may hold."""
    BLOCK_GAS_UNCONFIRMED = "block_gas_unconfirmed"
    """The same by the word of a single node, which no other node has confirmed yet."""
    FEES = "fees"
    """The fees are above the cap, or contradict each other."""
    FUNDS = "funds"
    """The wallet does not cover the most that the transaction can cost, beside all in flight."""

    @property
    def is_permanent(self) -> bool:
        """Whether waiting cannot help, because the transaction itself is the cause."""
        return self in {Obstacle.INTRINSIC_GAS, Obstacle.BLOCK_GAS}


class SigningLimits(msgspec.Struct, frozen=True):
    """`block_gas_limit` is the newest block's, or None on a chain that tells none. `funds_wei` is
    the balance less the most that everything else in flight can cost. `is_block_gas_confirmed`: the
    block's limit is not the word of a single node of several."""

    block_gas_limit: int | None
    fee_cap: int
    funds_wei: int
    is_block_gas_confirmed: bool = True


def min_gas_limit(data: bytes) -> int:
    """The gas limit below which nodes refuse a transaction with this data.

    The higher of its intrinsic gas (EIP-2028) and the floor of its data (EIP-7623), also on
    chains that do not have the floor yet.
    """
    return TRANSACTION_GAS + _FLOOR_PER_TOKEN * _tokens_in(data)


def intrinsic_gas(data: bytes) -> int:
    """The gas that any chain charges before it runs the call (EIP-2028)."""
    return TRANSACTION_GAS + _GAS_PER_TOKEN * _tokens_in(data)


def max_gas_limit(block_gas_limit: int | None) -> int:
    """The highest gas limit that nodes take."""
    return min(TRANSACTION_GAS_CAP, block_gas_limit or TRANSACTION_GAS_CAP)


def obstacle(gas_limit: int, data: bytes, fees: Fees, limits: SigningLimits) -> Obstacle | None:
    """The first obstacle to signing this call, or None."""
    if gas_limit < min_gas_limit(data):
        return Obstacle.INTRINSIC_GAS
    if gas_limit > max_gas_limit(limits.block_gas_limit):
        is_certain = limits.is_block_gas_confirmed or gas_limit > TRANSACTION_GAS_CAP
        return Obstacle.BLOCK_GAS if is_certain else Obstacle.BLOCK_GAS_UNCONFIRMED
    if not fees.max_priority_fee_per_gas <= fees.max_fee_per_gas <= limits.fee_cap:
        return Obstacle.FEES
    if gas_limit * fees.max_fee_per_gas > limits.funds_wei:
        return Obstacle.FUNDS
    return None


def _tokens_in(data: bytes) -> int:
    """EIP-7623: a zero byte is one token, any other byte four."""
    return _TOKENS_PER_BYTE * len(data) - (_TOKENS_PER_BYTE - 1) * data.count(0)
