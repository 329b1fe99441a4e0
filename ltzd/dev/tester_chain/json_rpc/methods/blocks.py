"""Reads of blocks by number and by hash; a hash also finds orphaned blocks."""

from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.objects import (
    JsonObject,
    block_object,
    receipt_object,
    transaction_object,
)
from ltzd.dev.tester_chain.json_rpc.params import BlockChoice, Params
from ltzd.values import hex_of


@method("eth_blockNumber")
async def block_number(context: MethodContext, _: Params) -> str:
    return hex(context.chain.block_tree.head.number)


@method("eth_getBlockByNumber", params_at_most=2)
async def by_number(context: MethodContext, params: Params) -> JsonObject | None:
    choice = _choice(params)
    full = params.flag(1, "full", default=False)
    block = await _chosen_block(context, choice)
    return None if block is None else block_object(block, full=full)


@method("eth_getBlockByHash", params_at_most=2)
async def by_hash(context: MethodContext, params: Params) -> JsonObject | None:
    block = context.chain.block_tree.by_hash(params.hash32(0, "hash"))
    full = params.flag(1, "full", default=False)
    return None if block is None else block_object(block, full=full)


@method("eth_getBlockReceipts", params_at_most=1)
async def receipts(context: MethodContext, params: Params) -> list[JsonObject] | None:
    choice = _choice(params)
    block = None if choice.is_pending else choice.find(context.chain.block_tree)
    if block is None or not choice.allows(context.chain.block_tree, block):
        return None
    return [receipt_object(block, index) for index in range(len(block.transactions))]


@method(
    "eth_getBlockTransactionCountByNumber", "eth_getBlockTransactionCountByHash", params_at_most=1
)
async def transaction_count(context: MethodContext, params: Params) -> str | None:
    block = await _chosen_block(context, _choice(params))
    return None if block is None else hex(len(block.transactions))


@method("eth_getUncleCountByBlockNumber", "eth_getUncleCountByBlockHash", params_at_most=1)
async def uncle_count(context: MethodContext, params: Params) -> str | None:
    return None if await _chosen_block(context, _choice(params)) is None else "0x0"


@method("eth_getUncleByBlockNumberAndIndex", "eth_getUncleByBlockHashAndIndex", params_at_most=2)
async def uncle(_context: MethodContext, params: Params) -> None:
    """No block here has uncles."""
    _choice(params)


@method(
    "eth_getTransactionByBlockNumberAndIndex",
    "eth_getTransactionByBlockHashAndIndex",
    params_at_most=2,
)
async def transaction_at(context: MethodContext, params: Params) -> JsonObject | None:
    block = await _chosen_block(context, _choice(params))
    index = params.quantity(1, "index")
    if block is None or index >= len(block.transactions):
        return None
    return transaction_object(block.transactions[index], block, index)


@method(
    "eth_getRawTransactionByBlockNumberAndIndex",
    "eth_getRawTransactionByBlockHashAndIndex",
    params_at_most=2,
)
async def raw_transaction_at(context: MethodContext, params: Params) -> str | None:
    block = await _chosen_block(context, _choice(params))
    index = params.quantity(1, "index")
    if block is None or index >= len(block.transactions):
        return None
    return hex_of(block.transactions[index].raw)


def _choice(params: Params) -> BlockChoice:
    params.required(0, "block")
    return params.block(0)


async def _chosen_block(context: MethodContext, choice: BlockChoice) -> MinedBlock | None:
    if choice.is_pending:
        return await context.chain.pending_block()
    return choice.find(context.chain.block_tree)
