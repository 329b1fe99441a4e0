"""Proves a header by its hash: the hash of the RLP of its fields.

Knows the fields of Ethereum's headers of all forks so far, which most other chains share.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ltzd.chain.rlp import encode_integer, encode_list, encode_text
from ltzd.values import Hash32, bytes_of, keccak


def _number(text: str) -> bytes:
    return encode_integer(int(text, 16))


def _bytes(text: str) -> bytes:
    return encode_text(bytes_of(text))


_FIELDS: Mapping[str, Callable[[str], bytes]] = {
    "parentHash": _bytes,
    "sha3Uncles": _bytes,
    "miner": _bytes,
    "stateRoot": _bytes,
    "transactionsRoot": _bytes,
    "receiptsRoot": _bytes,
    "logsBloom": _bytes,
    "difficulty": _number,
    "number": _number,
    "gasLimit": _number,
    "gasUsed": _number,
    "timestamp": _number,
    "extraData": _bytes,
    "mixHash": _bytes,
    "nonce": _bytes,
}
_LATER_FIELDS: Mapping[str, Callable[[str], bytes]] = {
    "baseFeePerGas": _number,
    "withdrawalsRoot": _bytes,
    "blobGasUsed": _number,
    "excessBlobGas": _number,
    "parentBeaconBlockRoot": _bytes,
    "requestsHash": _bytes,
    "blockAccessListHash": _bytes,
}
"""Fields that forks have added, in this order: a header has the first few of them."""


def is_header_of(block: Any, block_hash: Hash32) -> bool:
    """Whether the fields of a node's block are those that its hash commits to.

    False proves nothing: the chain may have headers of its own form.
    """
    try:
        return keccak(_encoded(block)) == block_hash
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return False


def _encoded(block: Mapping[str, Any]) -> bytes:
    fields = [encode(block[name]) for name, encode in _FIELDS.items()]
    for name, encode in _LATER_FIELDS.items():
        text = block.get(name)
        if text is None:
            break
        fields.append(encode(text))
    return encode_list(b"".join(fields))
