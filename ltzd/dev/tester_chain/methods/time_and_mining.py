"""Tools' power over time and mining, named as in anvil, hardhat and ganache."""

from typing import cast

from ltzd.dev.tester_chain.errors import invalid_parameter
from ltzd.dev.tester_chain.node import Node, method
from ltzd.dev.tester_chain.params import Params, quantity

_BLOCKS_AT_MOST = 100_000
_SECONDS_AT_MOST = 2**40


@method("anvil_mine", "hardhat_mine", params_at_most=2)
async def mine(node: Node, params: Params) -> None:
    """`count` blocks, `interval` seconds apart; the first takes what waits in the pool."""
    count = params.quantity(0, "count", 1, at_most=_BLOCKS_AT_MOST)
    await _mine(node, count, params.quantity(1, "interval", 0, at_most=_SECONDS_AT_MOST))


@method("evm_mine", params_at_most=1)
async def mine_one(node: Node, params: Params) -> str:
    given = params.given(0)
    options = cast("dict[str, object]", given) if isinstance(given, dict) else {"timestamp": given}
    if (timestamp := options.get("timestamp")) is not None:
        _set_next_timestamp(node, quantity(timestamp, "timestamp", at_most=_SECONDS_AT_MOST))
    blocks = options.get("blocks")
    count = 1 if blocks is None else quantity(blocks, "blocks", at_most=_BLOCKS_AT_MOST)
    await _mine(node, count, 0)
    return "0x0"


@method("evm_setAutomine", "anvil_setAutomine", params_at_most=1)
async def set_automine(node: Node, params: Params) -> None:
    params.required(0, "enabled")
    node.miner.set_automine(enabled=params.flag(0, "enabled", default=True))


@method("anvil_getAutomine", "hardhat_getAutomine")
async def get_automine(node: Node, _: Params) -> bool:
    return node.miner.automine


@method("evm_setIntervalMining", "anvil_setIntervalMining", params_at_most=1)
async def set_interval_mining(node: Node, params: Params) -> None:
    """Seconds between blocks, as anvil counts; zero ends it."""
    value = params.required(0, "seconds")
    if isinstance(value, float) and 0 <= value < 1e6:
        node.miner.set_interval(value)
    else:
        node.miner.set_interval(quantity(value, "seconds", at_most=_SECONDS_AT_MOST))


@method("anvil_getIntervalMining")
async def get_interval_mining(node: Node, _: Params) -> float | None:
    return node.miner.interval_seconds or None


@method("evm_increaseTime", "anvil_increaseTime", params_at_most=1)
async def increase_time(node: Node, params: Params) -> int:
    return node.chain.clock.advance(params.quantity(0, "seconds", at_most=_SECONDS_AT_MOST))


@method("evm_setTime", "anvil_setTime", params_at_most=1)
async def set_time(node: Node, params: Params) -> int:
    return node.chain.clock.set_to(params.quantity(0, "timestamp", at_most=_SECONDS_AT_MOST))


@method("evm_setNextBlockTimestamp", "anvil_setNextBlockTimestamp", params_at_most=1)
async def set_next_block_timestamp(node: Node, params: Params) -> None:
    _set_next_timestamp(node, params.quantity(0, "timestamp", at_most=_SECONDS_AT_MOST))


@method("anvil_setNextBlockBaseFeePerGas", "hardhat_setNextBlockBaseFeePerGas", params_at_most=1)
async def set_next_base_fee(node: Node, params: Params) -> None:
    node.chain.set_next_base_fee(params.quantity(0, "baseFee"))


async def _mine(node: Node, count: int, interval_seconds: int) -> None:
    for number in range(count):
        if number and interval_seconds > 1:
            # The clock has moved on by itself; only the rest of the interval is added.
            head = node.chain.ledger.head
            node.chain.clock.set_to(head.timestamp + interval_seconds)
        await node.chain.mine(even_empty=True)


def _set_next_timestamp(node: Node, timestamp: int) -> None:
    last = node.chain.ledger.head.timestamp
    if timestamp <= last:
        raise invalid_parameter(
            "timestamp", f"{timestamp} is not later than the last block's {last}"
        )
    node.chain.clock.set_next(timestamp)
