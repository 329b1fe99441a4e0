"""JSON-RPC's envelopes: calls, and what a node's reply to a call says."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from ltzd.chain.node.refusals import Refusal, classify_error
from ltzd.errors import LtzdError, NodeUnavailable

RpcCall: TypeAlias = tuple[str, Sequence[object]]
"""A method and its parameters."""

PUBLISH: Final = "eth_sendRawTransaction"
LOGS: Final = "eth_getLogs"

EXECUTION_CODE: Final = -32015
"""Nethermind's code of a call that failed in the EVM, by a revert or otherwise."""

_TEXT_LENGTH: Final = 1_000
"""Characters of an error text that are kept: its length is the node's choice."""

_HEX = r"0x(?:[0-9a-f]{2})*"
_REVERT_DATA = re.compile(
    rf"(?:err: )?(?:revert(?:ed)?\b(?: ({_HEX})\b)?|({_HEX})\b)", re.IGNORECASE
)
"""Revert data, as Nethermind writes it, too: `Reverted 0x…` or `err: 0x… (supplied gas 1)`. A
revert without data, or with a text in its place, is `revert` or `Reverted …`."""


class RpcError(LtzdError):
    """The node's error object. `data` is its revert data, or None if it has none.

    `refusal` says whether the node refused the call as too large, too early or unsupported. A call
    whose `refusal` is of one of the `SIZE_KINDS` must not be sent again unchanged.
    """

    def __init__(
        self, code: int, text: str, data: bytes | None = None, refusal: Refusal | None = None
    ) -> None:
        super().__init__(text)
        self.code = code
        self.data = data
        self.refusal = refusal


def envelope(id_: int, call: RpcCall) -> dict[str, object]:
    method, params = call
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": list(params)}


def outcome_of(reply: Any, method: str = "", secrets: Sequence[str] = ()) -> Any:
    """The result or the RpcError of one reply; `secrets` are left out of its text.

    `method` is that of the call, or "" for a whole batch. Raises NodeUnavailable for a malformed
    reply.
    """
    if not isinstance(reply, dict):
        raise NodeUnavailable("The node's answer is not a JSON-RPC reply", kind="malformed")
    error = reply.get("error")
    if error is None:
        if "result" not in reply:
            raise NodeUnavailable(
                "The node's answer holds neither result nor error", kind="malformed"
            )
        return reply["result"]
    if not isinstance(error, dict):
        return _rpc_error(0, _text(error), None, method, secrets)
    code = error.get("code")
    return _rpc_error(
        code if isinstance(code, int) else 0, _text(error.get("message")), error, method, secrets
    )


def _text(message: Any) -> str:
    """A list or an object is no text: it may have a hundred thousand items."""
    return str(message) if isinstance(message, str | int | float) else ""


def replies_by_id(replies: Sequence[Any]) -> dict[int, Any]:
    """The replies of a batch; two different replies to one call are None, which is malformed."""
    by_id: dict[int, Any] = {}
    for reply in replies:
        id_ = reply.get("id") if isinstance(reply, dict) else None
        if not isinstance(id_, int):
            continue
        by_id[id_] = None if id_ in by_id and by_id[id_] != reply else reply
    return by_id


def block_span(call: RpcCall) -> int | None:
    """The number of blocks that an `eth_getLogs` asks for, or None if it names no range."""
    method, params = call
    if method != LOGS or not params or not isinstance(params[0], Mapping):
        return None
    try:
        first, last = (int(params[0][key], 16) for key in ("fromBlock", "toBlock"))
    except (KeyError, TypeError, ValueError):
        return None
    return max(1, last - first + 1)


def _rpc_error(
    code: int, text: str, error: dict[str, Any] | None, method: str, secrets: Sequence[str]
) -> RpcError:
    data = error.get("data") if error else None
    refusal = classify_error(code, text, data, method)
    revert_data = _revert_data(data)
    if revert_data is None and code == EXECUTION_CODE:
        revert_data = _revert_data(text)  # Nethermind's answer to eth_estimateGas.
        if isinstance(data, str):
            text = f"{text} {data}"  # `err: OutOfGas (supplied gas 1)`, say.
    for secret in secrets:  # Before the cut, which might leave a part of a secret.
        text = text.replace(secret, "…")
    return RpcError(code, _printable(text[:_TEXT_LENGTH]), revert_data, refusal)


def _printable(text: str) -> str:
    """Replace line breaks and terminal codes by spaces: a command prints the text, and a node must
    not write lines of its own there.
    """
    return "".join(char if char.isprintable() else " " for char in text)


def _revert_data(data: Any) -> bytes | None:
    """Nodes put revert data in `data`, or one level deeper."""
    if isinstance(data, dict):
        data = data.get("data")
    match = _REVERT_DATA.match(data) if isinstance(data, str) else None
    return None if match is None else bytes.fromhex((match[1] or match[2] or "0x")[2:])
