"""What the next block costs and what the last ones cost."""

from ltzd.dev.tester_chain.block import Block
from ltzd.dev.tester_chain.errors import invalid_parameter
from ltzd.dev.tester_chain.fees import TIP_SUGGESTED, next_base_fee
from ltzd.dev.tester_chain.node import Node, method
from ltzd.dev.tester_chain.objects import JsonObject
from ltzd.dev.tester_chain.params import Params

_BLOCKS_AT_MOST = 1_024
_PERCENTILES_AT_MOST = 100


@method("eth_gasPrice")
async def gas_price(node: Node, _: Params) -> str:
    return hex(node.chain.base_fee() + TIP_SUGGESTED)


@method("eth_maxPriorityFeePerGas")
async def max_priority_fee_per_gas(_node: Node, _: Params) -> str:
    return hex(TIP_SUGGESTED)


@method("eth_blobBaseFee")
async def blob_base_fee(_node: Node, _: Params) -> str:
    return "0x1"


@method("eth_feeHistory", params_at_most=3)
async def fee_history(node: Node, params: Params) -> JsonObject:
    wanted = min(params.quantity(0, "blockCount"), _BLOCKS_AT_MOST)
    newest = params.block(1, "newestBlock").existing(node.chain.ledger)
    percentiles = _percentiles(params.given(2))
    first = max(0, newest.number - wanted + 1)
    blocks = node.chain.ledger.chain[first : newest.number + 1] if wanted else []
    if not blocks:
        return {"oldestBlock": "0x0", "gasUsedRatio": []}
    after = newest.number == node.chain.ledger.head.number
    next_fee = node.chain.base_fee() if after else next_base_fee(newest.header)
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
    for one in value:
        if isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one <= 100:
            raise invalid_parameter("rewardPercentiles", "expected numbers from 0 to 100")
    if sorted(value) != value:
        raise invalid_parameter("rewardPercentiles", "expected numbers in growing order")
    return [float(one) for one in value]


def _rewards(block: Block, percentiles: list[float]) -> list[str]:
    """The tip at each percentile of the block's gas, cheapest gas first."""
    tips = sorted(
        (one.price(block.base_fee) - block.base_fee, receipt.gas_used)
        for one, receipt in zip(block.transactions, block.receipts, strict=True)
    )
    return [hex(_tip_at(tips, block.header.gas_used * percent / 100)) for percent in percentiles]


def _tip_at(tips: list[tuple[int, int]], gas: float) -> int:
    below = 0
    for tip, gas_used in tips:
        below += gas_used
        if below >= gas:
            return tip
    return tips[-1][0] if tips else 0
