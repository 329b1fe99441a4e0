"""Lies of a node: a lie changes the true result of a call, or leaves it as it is.

A lie never raises; a result that it does not understand stays true.
"""

from collections.abc import Callable, Sequence
from typing import Any

Lie = Callable[[str, Sequence[Any], Any], Any]
"""From a method, its parameters and the true result to the result that the node gives."""

_NO_BLOOM = "0x" + "00" * 256


def null_receipts(method: str, _params: Sequence[Any], result: Any) -> Any:
    return None if method == "eth_getTransactionReceipt" else result


def empty_logs(method: str, _params: Sequence[Any], result: Any) -> Any:
    """No logs in any answer; the bloom filters of the blocks stay true."""
    if method == "eth_getLogs":
        return []
    if method == "eth_getBlockReceipts" and isinstance(result, list):
        return [{**receipt, "logs": []} for receipt in result]
    return result


def empty_blooms(method: str, _params: Sequence[Any], result: Any) -> Any:
    if _is_block(method, result):
        return {**result, "logsBloom": _NO_BLOOM}
    return result


def forged_head(method: str, params: Sequence[Any], result: Any) -> Any:
    """The newest block has another hash than by its number."""
    if _is_block(method, result) and params and params[0] == "latest":
        return {**result, "hash": _forged(result["hash"])}
    return result


def forged_blocks(method: str, _params: Sequence[Any], result: Any) -> Any:
    """Every block but the first has other hashes: a branch that nobody else has."""
    if _is_block(method, result) and result["number"] != "0x0":
        parent = result["parentHash"]
        is_second = result["number"] == "0x1"
        changes = {"hash": _forged(result["hash"])}
        return {**result, **changes, "parentHash": parent if is_second else _forged(parent)}
    return result


def padded_blocks(method: str, _params: Sequence[Any], result: Any) -> Any:
    """Every block has a field of the node's own with a hundred thousand empty objects."""
    return {**result, "padding": [{}] * 100_000} if _is_block(method, result) else result


def future_head(blocks: int) -> Lie:
    """The head is this many blocks too high; the node has none of them."""

    def lie(method: str, params: Sequence[Any], result: Any) -> Any:
        if method == "eth_blockNumber":
            return hex(int(result, 16) + blocks)
        if _is_block(method, result) and (method == "newHeads" or params[0] == "latest"):
            number = hex(int(result["number"], 16) + blocks)
            return {**result, "number": number, "hash": _forged(result["hash"])}
        return result

    return lie


def false_nonce(difference: int) -> Lie:
    """Every account has used so many nonces more, or fewer if `difference` is negative."""

    def lie(method: str, _params: Sequence[Any], result: Any) -> Any:
        if method == "eth_getTransactionCount":
            return hex(max(0, int(result, 16) + difference))
        return result

    return lie


def another_chain_id(chain_id: int) -> Lie:
    def lie(method: str, _params: Sequence[Any], result: Any) -> Any:
        if method == "eth_chainId":
            return hex(chain_id)
        return str(chain_id) if method == "net_version" else result

    return lie


def another_genesis(method: str, params: Sequence[Any], result: Any) -> Any:
    if _is_block(method, result) and params and params[0] in {"0x0", "earliest"}:
        return {**result, "hash": _forged(result["hash"])}
    return result


def no_code(method: str, _params: Sequence[Any], result: Any) -> Any:
    """No contract exists: no code, and calls that answer nothing."""
    return "0x" if method in {"eth_getCode", "eth_call"} else result


def _is_block(method: str, result: Any) -> bool:
    named = method in {"eth_getBlockByNumber", "eth_getBlockByHash", "newHeads"}
    return named and isinstance(result, dict)


def _forged(block_hash: str) -> str:
    """Another hash for each hash."""
    return block_hash[:-8] + f"{int(block_hash[-8:], 16) ^ 0xFFFFFFFF:08x}"
