"""The base fee of the next block by EIP-1559, in wei per gas."""

from ltzd.dev.tester_chain.execution.block import Header

TIP_SUGGESTED = 10**9
_ELASTICITY = 2
_CHANGE_DENOMINATOR = 8


def next_base_fee(parent: Header) -> int:
    base_fee, used = int(parent.base_fee_per_gas), int(parent.gas_used)
    target = int(parent.gas_limit) // _ELASTICITY
    change = base_fee * abs(used - target) // target // _CHANGE_DENOMINATOR
    if used > target:
        return base_fee + max(change, 1)
    return base_fee - change
