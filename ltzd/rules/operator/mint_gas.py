"""Compares the formula for a mint's gas with an estimate of this chain.

The formula's limits leave at least a quarter of room on a chain with Ethereum's gas schedule. Where
a chain charges more for the same work, all limits of mints grow by the same factor. A mint that ran
out of gas all the same is never repeated as it was: its rewards are minted in smaller batches and
with more gas each time, and in the end wait for a person.
"""

from typing import Final

USUAL_PERCENT: Final = 100
MOST_PERCENT: Final = 2_000
"""A higher factor counts as a node's error: at twenty times the formula not even ten rewards fit
into a block."""


def gas_percent(estimated_gas: int, formula_gas: int) -> int:
    """The factor for the formula's gas limits, in percent, from an estimate of one mint."""
    expected = formula_gas * 3 // 4
    return min(MOST_PERCENT, max(USUAL_PERCENT, -(-100 * estimated_gas // expected)))


MOST_OUT_OF_GAS: Final = 4
"""A reward fails after this number of mints that ran out of gas, the last one alone and with eight
times the gas."""

_MOST_REWARDS = (10, 1)
"""How many rewards may be minted together after one failed mint of theirs, and after more."""


def ran_out_of_gas(gas_used: int, gas_limit: int) -> bool:
    """Whether a mint reverted because it ran out of gas.

    A call may keep a 64th of its gas from a call within it (EIP-150), and has that left then.
    """
    return 64 * gas_used >= 63 * gas_limit


def most_together(failed_mints: int, max_batch: int) -> int:
    """How many rewards may be minted together after this number of their mints failed."""
    if failed_mints == 0:
        return max_batch
    return min(max_batch, _MOST_REWARDS[min(failed_mints, len(_MOST_REWARDS)) - 1])


def gas_percent_after(out_of_gas: int) -> int:
    """The factor in percent for the gas limit, after this number of mints ran out of gas."""
    return 100 << out_of_gas
