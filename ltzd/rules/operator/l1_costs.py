"""The price of a transaction's data on a chain that posts it to another chain, its L1.

An OP-stack chain takes a fee in wei beside the gas. Arbitrum adds gas, which counts in the gas
limit and in the gas used. Both depend on the size of the data, and both are read for no data and
for a sample. Between these two they grow with the size in a straight line, or in a curve below it.

L1's price may rise while a transaction waits, and nothing in the transaction bounds what it pays
for it, so reserves and gas limits hold twice the price of now: at an eighth a block L1's base fee
needs six blocks, 72 s, to double.

Units: bytes; wei; gas.
"""

from typing import Final

import msgspec
from msgspec.structs import astuple

SAMPLE_BYTES: Final = 16_384
ENVELOPE_BYTES: Final = 200
"""An upper bound of a signed transaction's bytes without its data."""
OPERATOR_FEE_SAMPLE: Final = 1_000_000
"""The gas for which an OP-stack chain's operator fee is read."""
MAX_GAS: Final = 1_000_000
MAX_GAS_PER_BYTE: Final = 5_000
"""A higher value counts as a node's error, so a mint of one reward always fits into a block. At
this price the data of one reward already costs a hundred times the mint."""

_MARGIN: Final = 2


class L1Costs(msgspec.Struct, frozen=True):
    """All fields are zero on a chain that is no rollup."""

    fee_without_data: int = 0
    fee_of_sample: int = 0
    gas_without_data: int = 0
    gas_of_sample: int = 0
    operator_fee_without_gas: int = 0
    operator_fee_of_sample: int = 0

    @property
    def of_sample(self) -> int:
        """The fees or the gas of a transaction with all samples, for comparisons alone."""
        return self.fee_of_sample + self.gas_of_sample + self.operator_fee_of_sample

    def max_fee_wei(self, data_bytes: int, gas_limit: int, count: int = 1) -> int:
        """The most that `count` transactions cost together beside their gas.

        `data_bytes` and `gas_limit` are the sums of these transactions.
        """
        l1_fee = _at(self.fee_without_data, self.fee_of_sample, data_bytes, SAMPLE_BYTES, count)
        return _MARGIN * (l1_fee + self.operator_fee_wei(gas_limit, count))

    def operator_fee_wei(self, gas: int, count: int = 1) -> int:
        """The OP-stack's operator fee of transactions that use this gas (Isthmus and later)."""
        without_gas, of_sample = self.operator_fee_without_gas, self.operator_fee_of_sample
        return _at(without_gas, of_sample, gas, OPERATOR_FEE_SAMPLE, count)

    def gas(self, data_bytes: int) -> int:
        """The gas that the chain adds now to the gas that a call uses."""
        at_zero = min(self.gas_without_data, MAX_GAS)
        at_sample = min(self.gas_of_sample, at_zero + MAX_GAS_PER_BYTE * SAMPLE_BYTES)
        return _at(at_zero, at_sample, data_bytes, SAMPLE_BYTES)

    def extra_gas(self, data_bytes: int) -> int:
        """The gas to add to the gas limit of a call."""
        return _MARGIN * self.gas(data_bytes)


NO_L1_COSTS: Final = L1Costs()


def are_far_apart(first: L1Costs, second: L1Costs) -> bool:
    """Whether reserves and gas limits for the lower price do not cover the higher one."""
    return any(
        max(prices) > _MARGIN * min(prices)
        for prices in zip(astuple(first), astuple(second), strict=True)
    )


def _at(at_zero: int, at_sample: int, size: int, sample: int, count: int = 1) -> int:
    return count * at_zero + -(-max(0, at_sample - at_zero) * size // sample)
