"""Compares the formula for a mint's gas with an estimate of this chain.

The formula's limits leave at least a quarter of room on a chain with Ethereum's gas schedule. Where
a chain charges more for the same work, all limits of mints grow by the same factor.
"""

from typing import Final

USUAL_PERCENT: Final = 100
MOST_PERCENT: Final = 2_000
"""More is taken for a node's fault: at twenty times the formula not even ten rewards fit."""


def gas_percent(estimated_gas: int, formula_gas: int) -> int:
    """The factor for the formula's gas limits, in percent, from an estimate of one mint."""
    expected = formula_gas * 3 // 4
    return min(MOST_PERCENT, max(USUAL_PERCENT, -(-100 * estimated_gas // expected)))
