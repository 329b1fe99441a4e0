"""JSON-RPC errors of the tester chain, with geth's codes and messages.

Codes from -32700 to -32600 are JSON-RPC's own. Code -32000 is any other refusal. Code 3 is a
revert, whose `data` is 0x-hex.
"""

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError

from ltzd.values import Address, checksummed, hex_of

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000
REVERTED = 3

_ERROR_STRING = bytes.fromhex("08c379a0")
_PANIC = bytes.fromhex("4e487b71")
_PANICS = {
    0x00: "generic panic",
    0x01: "assert(false)",
    0x11: "arithmetic underflow or overflow",
    0x12: "division or modulo by zero",
    0x21: "enum overflow",
    0x22: "invalid encoded storage byte array accessed",
    0x31: "out-of-bounds array access; popping on an empty array",
    0x32: "out-of-bounds access of an array or bytesN",
    0x41: "out of memory",
    0x51: "uninitialized function",
}


class JsonRpcError(Exception):
    """Becomes the error object of the reply."""

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def as_json(self) -> dict[str, object]:
        error: dict[str, object] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return error


def refused(message: str) -> JsonRpcError:
    return JsonRpcError(SERVER_ERROR, message)


def cap_too_low(sender: Address, cap: int, base_fee: int) -> JsonRpcError:
    return refused(
        "max fee per gas less than block base fee: "
        f"address {checksummed(sender)}, maxFeePerGas: {cap}, baseFee: {base_fee}"
    )


def tip_above_cap(sender: Address, tip: int, cap: int) -> JsonRpcError:
    return refused(
        "max priority fee per gas higher than max fee per gas: "
        f"address {checksummed(sender)}, maxPriorityFeePerGas: {tip}, maxFeePerGas: {cap}"
    )


def invalid_parameter(name: str, reason: str) -> JsonRpcError:
    return JsonRpcError(INVALID_PARAMS, f"invalid parameter {name}: {reason}")


def reverted(output: bytes) -> JsonRpcError:
    """geth's error for a revert: the reason in the message, the output bytes in `data`."""
    reason = _reason(output)
    message = f"execution reverted: {reason}" if reason is not None else "execution reverted"
    return JsonRpcError(REVERTED, message, hex_of(output))


def _reason(output: bytes) -> str | None:
    if output[:4] == _PANIC and len(output) == 36:
        code = int.from_bytes(output[4:], "big")
        return _PANICS.get(code, f"unknown panic code: {code:#x}")
    if output[:4] != _ERROR_STRING:
        return None
    try:
        (reason,) = decode(["string"], output[4:])
    except (DecodingError, UnicodeDecodeError):
        return None
    return str(reason)
