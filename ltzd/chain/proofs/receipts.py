"""Proves a block's receipts by the receipts root of its header.

Receipts of every type are encoded as EIP-2718 says: the type's byte, then the RLP of the fields.
Receipts from before Byzantium have a state root in place of a status. Deposits of OP-stack chains
have two more fields.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ltzd.chain.proofs.headers import is_header_of
from ltzd.chain.proofs.trie import ordered_root
from ltzd.chain.rlp import encode_integer, encode_list, encode_text
from ltzd.values import Hash32, bytes_of, hash_of

_DEPOSIT = 0x7E
_RECEIPTS_PER_SLICE = 50
"""Receipts that are encoded before other tasks of this process run."""


async def are_receipts_of(block: Any, receipts: Any, block_hash: Hash32) -> bool:
    """Whether a block's hash proves that these are all its receipts, with all their logs.

    Covers each log's contract, topics, data, index and height. False proves nothing: the chain may
    encode headers or receipts in a form of its own.
    """
    if not is_header_of(block, block_hash):
        return False
    try:
        encoded = []
        for position, receipt in enumerate(receipts):
            encoded.append(encode_receipt(receipt))
            if position % _RECEIPTS_PER_SLICE == _RECEIPTS_PER_SLICE - 1:
                await asyncio.sleep(0)
        is_root = ordered_root(encoded) == bytes_of(block["receiptsRoot"])
        return is_root and _are_placed(receipts, int(block["number"], 16), block_hash)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return False


def encode_receipt(receipt: Mapping[str, Any]) -> bytes:
    """The bytes of a receipt in the receipts trie.

    Raises KeyError, TypeError, ValueError or AttributeError for a malformed receipt.
    """
    kind = int(receipt.get("type") or "0x0", 16)
    fields = [
        _outcome(receipt),
        _encode_quantity(receipt["cumulativeGasUsed"]),
        encode_text(bytes_of(receipt["logsBloom"])),
        encode_list(b"".join(map(_encode_log, receipt["logs"]))),
    ]
    version = receipt.get("depositReceiptVersion")
    if kind == _DEPOSIT and version is not None:
        fields += [_encode_quantity(number) for number in (receipt["depositNonce"], version)]
    encoded = encode_list(b"".join(fields))
    return bytes((kind,)) + encoded if kind else encoded


def _outcome(receipt: Mapping[str, Any]) -> bytes:
    status = receipt.get("status")
    return encode_text(bytes_of(receipt["root"])) if status is None else _encode_quantity(status)


def _encode_quantity(text: str) -> bytes:
    return encode_integer(int(text, 16))


def _encode_log(entry: Mapping[str, Any]) -> bytes:
    topics = b"".join(encode_text(bytes_of(topic)) for topic in entry["topics"])
    return encode_list(
        encode_text(bytes_of(entry["address"]))
        + encode_list(topics)
        + encode_text(bytes_of(entry["data"]))
    )


def _are_placed(receipts: Sequence[Mapping[str, Any]], number: int, block_hash: Hash32) -> bool:
    """Whether the logs name this block and its height, and are numbered through."""
    logs = [entry for receipt in receipts for entry in receipt["logs"]]
    return all(
        int(entry["logIndex"], 16) == index
        and int(entry["blockNumber"], 16) == number
        and hash_of(entry["blockHash"]) == block_hash
        for index, entry in enumerate(logs)
    )
