"""Tells from a node's error whether it lacks a block, or cannot read by a block's hash (EIP-1898).

tests/chain/node/test_reads_by_hash.py has the texts by client.
"""

import re

from ltzd.chain.node.rpc import RpcError

_INVALID_PARAMS = -32602
_NO_BLOCK = re.compile(
    "header (for hash )?not found"
    "|block (.* )?not found"
    "|unknown (block|header)"
    "|block does ?n[o']t exist"
    "|block ?(is )?out ?of ?range"
    "|latest block number is"
    "|unfinalized data"
    "|could not be found"
    "|no state available for block"
    "|(not|non)[ -](currently )?canonical"
    "|resource not found",
    re.IGNORECASE,
)
_NO_HASH = re.compile(
    "cannot unmarshal object"
    "|expected (a |hex )?string"
    "|invalid (argument|type|block ?(number|tag|parameter)|input)"
    "|hex string"
    "|not supported"
    "|unsupported"
    "|eip-?1898",
    re.IGNORECASE,
)


def lacks_block(error: RpcError) -> bool:
    """Whether the node does not hold the named block, or holds it off the canonical chain."""
    return error.data is None and _NO_BLOCK.search(error.message) is not None


def refuses_hash(error: RpcError) -> bool:
    """Whether the node may have refused a block's hash as such: then a height serves."""
    if error.data is not None or "revert" in error.message.lower():
        return False
    return error.code == _INVALID_PARAMS or _NO_HASH.search(error.message) is not None
