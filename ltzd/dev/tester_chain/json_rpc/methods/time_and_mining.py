"""Control of time and mining, under the names of anvil, hardhat and ganache."""

from typing import cast

from ltzd.dev.tester_chain.errors import INVALID_PARAMS, JsonRpcError, invalid_parameter
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject, block_object
from ltzd.dev.tester_chain.json_rpc.params import Params, quantity

_BLOCKS_AT_MOST = 100_000
_SECONDS_AT_MOST = 2**40
_GAS_AT_MOST = 2**63 - 1


@method("anvil_mine", "hardhat_mine", params_at_most=2)
async def mine(context: MethodContext, params: Params) -> None:
    """Mine `count` blocks, `interval` seconds apart; the first takes the pool's content."""
    count = params.quantity(0, "count", 1, at_most=_BLOCKS_AT_MOST)
    await _mine(context, count, params.quantity(1, "interval", 0, at_most=_SECONDS_AT_MOST))


@method("evm_mine", params_at_most=1)
async def mine_one(context: MethodContext, params: Params) -> str:
    given = params.given(0)
    options = cast("dict[str, object]", given) if isinstance(given, dict) else {"timestamp": given}
    if (timestamp := options.get("timestamp")) is not None:
        _set_next_timestamp(context, quantity(timestamp, "timestamp", at_most=_SECONDS_AT_MOST))
    blocks = options.get("blocks")
    count = 1 if blocks is None else quantity(blocks, "blocks", at_most=_BLOCKS_AT_MOST)
    await _mine(context, count, 0)
    return "0x0"


@method("evm_mine_detailed", "anvil_mine_detailed", params_at_most=1)
async def mine_and_tell(context: MethodContext, params: Params) -> list[JsonObject]:
    """Mine as evm_mine does; returns the blocks with their transactions."""
    before = context.chain.block_tree.head.number
    await mine_one(context, params)
    blocks = context.chain.block_tree.chain[before + 1 :]
    return [block_object(block, full=True) for block in blocks]


@method("evm_setAutomine", "anvil_setAutomine", params_at_most=1)
async def set_automine(context: MethodContext, params: Params) -> None:
    params.required(0, "enabled")
    context.miner.set_automine(enabled=params.flag(0, "enabled", default=True))


@method("anvil_getAutomine", "hardhat_getAutomine")
async def get_automine(context: MethodContext, _: Params) -> bool:
    return context.miner.automine


@method("evm_setIntervalMining", "anvil_setIntervalMining", params_at_most=1)
async def set_interval_mining(context: MethodContext, params: Params) -> None:
    """Set the seconds between blocks, as in anvil; zero ends interval mining."""
    value = params.required(0, "seconds")
    if isinstance(value, float) and 0 <= value < 1e6:
        context.miner.set_interval(value)
    else:
        context.miner.set_interval(quantity(value, "seconds", at_most=_SECONDS_AT_MOST))


@method("anvil_getIntervalMining")
async def get_interval_mining(context: MethodContext, _: Params) -> float | None:
    return context.miner.interval_seconds or None


@method("evm_increaseTime", "anvil_increaseTime", params_at_most=1)
async def increase_time(context: MethodContext, params: Params) -> int:
    return context.chain.clock.advance(params.quantity(0, "seconds", at_most=_SECONDS_AT_MOST))


@method("evm_setTime", "anvil_setTime", params_at_most=1)
async def set_time(context: MethodContext, params: Params) -> int:
    return context.chain.clock.set_to(params.quantity(0, "timestamp", at_most=_SECONDS_AT_MOST))


@method("evm_setNextBlockTimestamp", "anvil_setNextBlockTimestamp", params_at_most=1)
async def set_next_block_timestamp(context: MethodContext, params: Params) -> None:
    _set_next_timestamp(context, params.quantity(0, "timestamp", at_most=_SECONDS_AT_MOST))


@method("anvil_setBlockTimestampInterval", params_at_most=1)
async def set_block_timestamp_interval(context: MethodContext, params: Params) -> None:
    """Set the seconds from each block's timestamp to the next one's."""
    seconds = params.quantity(0, "seconds", at_most=_SECONDS_AT_MOST)
    context.chain.clock.interval_seconds = seconds


@method("anvil_removeBlockTimestampInterval")
async def remove_block_timestamp_interval(context: MethodContext, _: Params) -> bool:
    """Return whether an interval was set."""
    was_set = context.chain.clock.interval_seconds is not None
    context.chain.clock.interval_seconds = None
    return was_set


@method("anvil_setBlockGasLimit", "evm_setBlockGasLimit", params_at_most=1)
async def set_block_gas_limit(context: MethodContext, params: Params) -> bool:
    context.chain.set_gas_limit(params.quantity(0, "gasLimit", at_most=_GAS_AT_MOST))
    return True


@method("anvil_setMinGasPrice", "hardhat_setMinGasPrice", params_at_most=1)
async def set_min_gas_price(_context: MethodContext, _: Params) -> None:
    """Refused as in anvil: blocks have a base fee here."""
    raise JsonRpcError(
        INVALID_PARAMS, "anvil_setMinGasPrice is not supported when EIP-1559 is active"
    )


@method("anvil_getGenesisTime")
async def genesis_time(context: MethodContext, _: Params) -> int:
    return context.chain.block_tree.chain[0].timestamp


@method("anvil_setNextBlockBaseFeePerGas", "hardhat_setNextBlockBaseFeePerGas", params_at_most=1)
async def set_next_base_fee(context: MethodContext, params: Params) -> None:
    context.chain.set_next_base_fee(params.quantity(0, "baseFee"))


async def _mine(context: MethodContext, count: int, interval_seconds: int) -> None:
    for number in range(count):
        if interval_seconds:
            # The first from the clock, the others from the head: the wall clock has moved on.
            clock, head = context.chain.clock, context.chain.block_tree.head
            last = head.timestamp if number else max(clock.now(), head.timestamp)
            clock.set_to(last + interval_seconds)
        await context.chain.mine(even_empty=True)


def _set_next_timestamp(context: MethodContext, timestamp: int) -> None:
    last = context.chain.block_tree.head.timestamp
    if timestamp < last:
        raise invalid_parameter("timestamp", f"{timestamp} is lower than the last block's {last}")
    context.chain.clock.set_next(timestamp)
