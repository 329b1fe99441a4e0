"""Blocks, transactions, receipts and logs as the JSON objects that geth answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from ltzd.dev.tester_chain.block import Block, Log
from ltzd.dev.tester_chain.transaction import Transaction
from ltzd.values import Address, hex_of

JsonObject = dict[str, Any]


def block_object(block: Block, *, full: bool) -> JsonObject:
    header = block.header
    return {
        "number": hex(block.number),
        "hash": hex_of(block.hash),
        "parentHash": hex_of(header.parent_hash),
        "nonce": hex_of(header.nonce),
        "mixHash": hex_of(header.mix_hash),
        "sha3Uncles": hex_of(header.uncles_hash),
        "logsBloom": hex_of(block.bloom.to_bytes(256, "big")),
        "transactionsRoot": hex_of(header.transaction_root),
        "stateRoot": hex_of(header.state_root),
        "receiptsRoot": hex_of(header.receipt_root),
        "miner": hex_of(header.coinbase),
        "difficulty": "0x0",
        "extraData": hex_of(header.extra_data),
        "size": hex(block.size_bytes),
        "gasLimit": hex(header.gas_limit),
        "gasUsed": hex(header.gas_used),
        "timestamp": hex(block.timestamp),
        "baseFeePerGas": hex(block.base_fee),
        "withdrawalsRoot": hex_of(header.withdrawals_root),
        "blobGasUsed": hex(header.blob_gas_used),
        "excessBlobGas": hex(header.excess_blob_gas),
        "parentBeaconBlockRoot": hex_of(header.parent_beacon_block_root),
        "uncles": [],
        "withdrawals": [],
        "transactions": [
            transaction_object(one, block, index) if full else hex_of(one.hash)
            for index, one in enumerate(block.transactions)
        ],
    }


def pending_block_object(
    head: Block, timestamp: int, base_fee: int, waiting: Sequence[Transaction], *, full: bool
) -> JsonObject:
    """The block that would come next; what only mining decides is null."""
    return {
        **block_object(head, full=False),
        "number": hex(head.number + 1),
        "hash": None,
        "nonce": None,
        "miner": None,
        "logsBloom": None,
        "parentHash": hex_of(head.hash),
        "timestamp": hex(timestamp),
        "baseFeePerGas": hex(base_fee),
        "gasUsed": "0x0",
        "transactions": [transaction_object(one) if full else hex_of(one.hash) for one in waiting],
    }


def transaction_object(
    one: Transaction, block: Block | None = None, index: int | None = None
) -> JsonObject:
    """A transaction, mined in `block` or else waiting in the pool."""
    answer: JsonObject = {
        "blockHash": None if block is None else hex_of(block.hash),
        "blockNumber": None if block is None else hex(block.number),
        "transactionIndex": None if index is None else hex(index),
        "hash": hex_of(one.hash),
        "type": hex(one.type_id),
        "from": hex_of(one.sender),
        "to": hex_of(one.to) if one.to else None,
        "nonce": hex(one.nonce),
        "gas": hex(one.gas),
        "gasPrice": hex(one.max_fee_per_gas if block is None else one.price(block.base_fee)),
        "value": hex(one.value),
        "input": hex_of(one.data),
        "v": hex(one.v),
        "r": hex(one.r),
        "s": hex(one.s),
    }
    if one.chain_id is not None:
        answer["chainId"] = hex(one.chain_id)
    if one.type_id:
        answer["yParity"] = hex(one.v)
        answer["accessList"] = access_list_object(one)
    if one.type_id == 2:
        answer["maxFeePerGas"] = hex(one.max_fee_per_gas)
        answer["maxPriorityFeePerGas"] = hex(one.max_priority_fee_per_gas)
    return answer


def access_list_object(one: Transaction) -> list[JsonObject]:
    return [
        {
            "address": hex_of(address),
            "storageKeys": [hex_of(key.to_bytes(32, "big")) for key in keys],
        }
        for address, keys in one.access_list
    ]


def receipt_object(block: Block, index: int) -> JsonObject:
    one, receipt = block.transactions[index], block.receipts[index]
    return {
        "type": hex(one.type_id),
        "status": "0x1" if receipt.succeeded else "0x0",
        "transactionHash": hex_of(one.hash),
        "transactionIndex": hex(index),
        "blockHash": hex_of(block.hash),
        "blockNumber": hex(block.number),
        "from": hex_of(one.sender),
        "to": hex_of(one.to) if one.to else None,
        "contractAddress": (
            None if receipt.contract_address is None else hex_of(receipt.contract_address)
        ),
        "gasUsed": hex(receipt.gas_used),
        "cumulativeGasUsed": hex(receipt.cumulative_gas_used),
        "effectiveGasPrice": hex(one.price(block.base_fee)),
        "logsBloom": hex_of(receipt.bloom.to_bytes(256, "big")),
        "logs": [log_object(block, log) for log in receipt.logs],
    }


def log_object(block: Block, log: Log, *, removed: bool = False) -> JsonObject:
    return {
        "address": hex_of(log.address),
        "topics": [hex_of(topic) for topic in log.topics],
        "data": hex_of(log.data),
        "blockNumber": hex(block.number),
        "blockHash": hex_of(block.hash),
        "blockTimestamp": hex(block.timestamp),
        "transactionHash": hex_of(block.transactions[log.transaction_index].hash),
        "transactionIndex": hex(log.transaction_index),
        "logIndex": hex(log.index),
        "removed": removed,
    }


def header_object(block: Block) -> JsonObject:
    """What a newHeads subscriber hears: the header without the body."""
    body = {"transactions", "uncles", "withdrawals", "size"}
    return {key: value for key, value in block_object(block, full=False).items() if key not in body}


def pool_object(
    by_sender: Mapping[Address, Mapping[int, Transaction]],
) -> dict[str, dict[str, JsonObject]]:
    return {
        hex_of(sender): {str(nonce): transaction_object(one) for nonce, one in waiting.items()}
        for sender, waiting in by_sender.items()
        if waiting
    }
