"""Blocks, transactions, receipts and logs as JSON objects in geth's format."""

from collections.abc import Mapping
from typing import Any

from ltzd.dev.tester_chain.execution.block import MinedBlock, MinedLog
from ltzd.dev.tester_chain.execution.transaction import AccessList, EvmTransaction
from ltzd.values import Address, hex_of

JsonObject = dict[str, Any]


def block_object(block: MinedBlock, *, full: bool) -> JsonObject:
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
        "totalDifficulty": "0x0",
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
        "requestsHash": hex_of(header.requests_hash),
        "uncles": [],
        "withdrawals": [],
        "transactions": [
            transaction_object(transaction, block, index) if full else hex_of(transaction.hash)
            for index, transaction in enumerate(block.transactions)
        ],
    }


def transaction_object(
    transaction: EvmTransaction, block: MinedBlock | None = None, index: int | None = None
) -> JsonObject:
    """A transaction mined in `block`, or one in the pool if `block` is None."""
    answer: JsonObject = {
        "blockHash": None if block is None else hex_of(block.hash),
        "blockNumber": None if block is None else hex(block.number),
        "transactionIndex": None if index is None else hex(index),
        "hash": hex_of(transaction.hash),
        "type": hex(transaction.type_id),
        "from": hex_of(transaction.sender),
        "to": hex_of(transaction.to) if transaction.to else None,
        "nonce": hex(transaction.nonce),
        "gas": hex(transaction.gas),
        "gasPrice": hex(
            transaction.max_fee_per_gas if block is None else transaction.price(block.base_fee)
        ),
        "value": hex(transaction.value),
        "input": hex_of(transaction.data),
        "v": hex(transaction.v),
        "r": hex(transaction.r),
        "s": hex(transaction.s),
    }
    if block is not None:
        answer["blockTimestamp"] = hex(block.timestamp)
    if transaction.chain_id is not None:
        answer["chainId"] = hex(transaction.chain_id)
    if transaction.type_id:
        answer["yParity"] = hex(transaction.v)
        answer["accessList"] = access_list_object(transaction.access_list)
    if transaction.type_id >= 2:
        answer["maxFeePerGas"] = hex(transaction.max_fee_per_gas)
        answer["maxPriorityFeePerGas"] = hex(transaction.max_priority_fee_per_gas)
    if transaction.type_id == 4:
        answer["authorizationList"] = [
            {
                "chainId": hex(each.chain_id),
                "address": hex_of(each.address),
                "nonce": hex(each.nonce),
                "yParity": hex(each.y_parity),
                "r": hex(each.r),
                "s": hex(each.s),
            }
            for each in transaction.authorization_list
        ]
    return answer


def access_list_object(accesses: AccessList) -> list[JsonObject]:
    return [
        {
            "address": hex_of(address),
            "storageKeys": [hex_of(key.to_bytes(32, "big")) for key in keys],
        }
        for address, keys in accesses
    ]


def receipt_object(block: MinedBlock, index: int) -> JsonObject:
    transaction, receipt = block.transactions[index], block.receipts[index]
    return {
        "type": hex(transaction.type_id),
        "status": "0x1" if receipt.succeeded else "0x0",
        "transactionHash": hex_of(transaction.hash),
        "transactionIndex": hex(index),
        "blockHash": hex_of(block.hash),
        "blockNumber": hex(block.number),
        "from": hex_of(transaction.sender),
        "to": hex_of(transaction.to) if transaction.to else None,
        "contractAddress": (
            None if receipt.contract_address is None else hex_of(receipt.contract_address)
        ),
        "gasUsed": hex(receipt.gas_used),
        "cumulativeGasUsed": hex(receipt.cumulative_gas_used),
        "effectiveGasPrice": hex(transaction.price(block.base_fee)),
        "blobGasPrice": "0x1",
        "logsBloom": hex_of(receipt.bloom.to_bytes(256, "big")),
        "logs": [log_object(block, log) for log in receipt.logs],
    }


def log_object(block: MinedBlock, log: MinedLog, *, removed: bool = False) -> JsonObject:
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


def header_object(block: MinedBlock) -> JsonObject:
    """The notification of newHeads: the block without its body."""
    body = {"transactions", "uncles", "withdrawals", "size"}
    return {key: value for key, value in block_object(block, full=False).items() if key not in body}


def pool_object(
    by_sender: Mapping[Address, Mapping[int, EvmTransaction]],
) -> dict[str, dict[str, JsonObject]]:
    return {
        hex_of(sender): {
            str(nonce): transaction_object(transaction) for nonce, transaction in waiting.items()
        }
        for sender, waiting in by_sender.items()
        if waiting
    }
