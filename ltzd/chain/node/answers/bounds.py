"""How long a node's answer to a call may be, in bytes of JSON: no honest answer is longer.

An error object has the same bound as the result. The bounds are several times what honest nodes
answer at most.
"""

from collections.abc import Sequence
from typing import Final

from ltzd.chain.node.calls import LOGS, PUBLISH, RpcCall

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB

_NUMBER: Final = 64 * _KIB
"""For a number, a hash, a short list of them, or a sentence."""
_CALL: Final = 256 * _KIB
"""For what ltzd's contracts return or revert with, and for the fees of 1,024 blocks."""
_HEADER: Final = 2 * _MIB
"""For a block's header and the hashes of 28,000 transactions: 500 million gas of transfers."""
_RECEIPT: Final = 8 * _MIB
"""For 12,000 logs. The receipts of foreign transactions of a block are read, too."""
_LARGEST: Final = 32 * _MIB

_BOUNDS: Final[dict[str, int]] = {
    "eth_accounts": _NUMBER,
    "eth_blockNumber": _NUMBER,
    "eth_call": _CALL,
    "eth_chainId": _NUMBER,
    "eth_estimateGas": _CALL,
    "eth_feeHistory": _CALL,
    "eth_gasPrice": _NUMBER,
    "eth_getBalance": _NUMBER,
    "eth_getBlockReceipts": _LARGEST,
    "eth_getCode": _MIB,
    LOGS: _LARGEST,
    "eth_getTransactionByHash": _HEADER,
    "eth_getTransactionCount": _NUMBER,
    "eth_getTransactionReceipt": _RECEIPT,
    "eth_maxPriorityFeePerGas": _NUMBER,
    PUBLISH: _NUMBER,
    "eth_sendTransaction": _NUMBER,
    "eth_syncing": _NUMBER,
    "txpool_contentFrom": _LARGEST,
    "web3_clientVersion": _NUMBER,
}
"""The bound of each call that ltzd makes, apart from its dev tools."""
_BLOCKS: Final = frozenset(("eth_getBlockByHash", "eth_getBlockByNumber"))


def answer_bound(calls: Sequence[RpcCall]) -> int:
    """The bound of the answer to a request with these calls."""
    if len(calls) == 1:
        return _bound(*calls[0])
    return min(_LARGEST, sum([_bound(method, params) for method, params in calls]))


def _bound(method: str, params: Sequence[object]) -> int:
    if method not in _BLOCKS:
        return _BOUNDS.get(method, _LARGEST)
    has_transactions = True in params[1:]
    return _LARGEST if has_transactions else _HEADER
