"""Fees of the next block and of past blocks."""

from ltzd.dev.tester_chain.errors import invalid_parameter
from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.dev.tester_chain.execution.fees import TIP_SUGGESTED, next_base_fee
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject
from ltzd.dev.tester_chain.json_rpc.params import Params

_BLOCKS_AT_MOST = 1_024
_PERCENTILES_AT_MOST = 100


@method("eth_gasPrice")
async def gas_price(context: MethodContext, _: Params) -> str:
    return hex(context.chain.base_fee() + TIP_SUGGESTED)


@method("eth_maxPriorityFeePerGas")
async def max_priority_fee_per_gas(_context: MethodContext, _: Params) -> str:
    return hex(TIP_SUGGESTED)


@method("eth_blobBaseFee")
async def blob_base_fee(_context: MethodContext, _: Params) -> str:
    return "0x1"


@method("eth_feeHistory", params_at_most=3)
async def fee_history(context: MethodContext, params: Params) -> JsonObject:
    count = min(params.quantity(0, "blockCount"), _BLOCKS_AT_MOST)
    newest = params.block(1, "newestBlock").existing(context.chain.block_tree)
    percentiles = _percentiles(params.given(2))
    first = max(0, newest.number - count + 1)
    blocks = context.chain.block_tree.chain[first : newest.number + 1] if count else []
    if not blocks:
        return {"oldestBlock": "0x0", "gasUsedRatio": []}
    after = newest.number == context.chain.block_tree.head.number
    next_fee = context.chain.base_fee() if after else next_base_fee(newest.header)
    answer: JsonObject = {
        "oldestBlock": hex(first),
        "baseFeePerGas": [*(hex(block.base_fee) for block in blocks), hex(next_fee)],
        "gasUsedRatio": [block.header.gas_used / block.header.gas_limit for block in blocks],
        "baseFeePerBlobGas": ["0x1"] * (len(blocks) + 1),
        "blobGasUsedRatio": [0.0] * len(blocks),
    }
    if percentiles:
        answer["reward"] = [_rewards(block, percentiles) for block in blocks]
    return answer


def _percentiles(value: object) -> list[float]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _PERCENTILES_AT_MOST:
        raise invalid_parameter("rewardPercentiles", "expected a list of at most 100 numbers")
    for percent in value:
        is_number = isinstance(percent, int | float) and not isinstance(percent, bool)
        if not is_number or not 0 <= percent <= 100:
            raise invalid_parameter("rewardPercentiles", "expected numbers from 0 to 100")
    if sorted(value) != value:
        raise invalid_parameter("rewardPercentiles", "expected numbers in growing order")
    return [float(percent) for percent in value]


def _rewards(block: MinedBlock, percentiles: list[float]) -> list[str]:
    """The tip at each percentile of the block's gas, in ascending order of tips."""
    tips = sorted(
        (transaction.price(block.base_fee) - block.base_fee, receipt.gas_used)
        for transaction, receipt in zip(block.transactions, block.receipts, strict=True)
    )
    return [hex(_tip_at(tips, block.header.gas_used * percent / 100)) for percent in percentiles]


def _tip_at(tips: list[tuple[int, int]], gas: float) -> int:
    below = 0
    for tip, gas_used in tips:
        below += gas_used
        if below >= gas:
            return tip
    return tips[-1][0] if tips else 0
