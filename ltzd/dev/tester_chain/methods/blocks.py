"""Blocks by number and by hash; by hash also those that a reorg has left."""

from ltzd.dev.tester_chain.block import Block
from ltzd.dev.tester_chain.node import Node, method
from ltzd.dev.tester_chain.objects import (
    JsonObject,
    block_object,
    pending_block_object,
    receipt_object,
    transaction_object,
)
from ltzd.dev.tester_chain.params import Params


@method("eth_blockNumber")
async def block_number(node: Node, _: Params) -> str:
    return hex(node.chain.ledger.head.number)


@method("eth_getBlockByNumber", params_at_most=2)
async def by_number(node: Node, params: Params) -> JsonObject | None:
    params.required(0, "block")
    choice = params.block(0)
    full = params.flag(1, "full", default=False)
    if choice.is_pending:
        chain = node.chain
        head = chain.ledger.head
        timestamp = chain.clock.next_timestamp(head.timestamp)
        return pending_block_object(
            head, timestamp, chain.base_fee(), chain.executable(), full=full
        )
    block = choice.find(node.chain.ledger)
    return None if block is None else block_object(block, full=full)


@method("eth_getBlockByHash", params_at_most=2)
async def by_hash(node: Node, params: Params) -> JsonObject | None:
    block = node.chain.ledger.by_hash(params.hash32(0, "hash"))
    full = params.flag(1, "full", default=False)
    return None if block is None else block_object(block, full=full)


@method("eth_getBlockReceipts", params_at_most=1)
async def receipts(node: Node, params: Params) -> list[JsonObject] | None:
    block = _found(node, params)
    if block is None:
        return None
    return [receipt_object(block, index) for index in range(len(block.transactions))]


@method(
    "eth_getBlockTransactionCountByNumber", "eth_getBlockTransactionCountByHash", params_at_most=1
)
async def transaction_count(node: Node, params: Params) -> str | None:
    block = _found(node, params)
    return None if block is None else hex(len(block.transactions))


@method("eth_getUncleCountByBlockNumber", "eth_getUncleCountByBlockHash", params_at_most=1)
async def uncle_count(node: Node, params: Params) -> str | None:
    return None if _found(node, params) is None else "0x0"


@method(
    "eth_getTransactionByBlockNumberAndIndex",
    "eth_getTransactionByBlockHashAndIndex",
    params_at_most=2,
)
async def transaction_at(node: Node, params: Params) -> JsonObject | None:
    block = _found(node, params)
    index = params.quantity(1, "index")
    if block is None or index >= len(block.transactions):
        return None
    return transaction_object(block.transactions[index], block, index)


def _found(node: Node, params: Params) -> Block | None:
    params.required(0, "block")
    return params.block(0).find(node.chain.ledger)
