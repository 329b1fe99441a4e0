"""Turns the revert data of a contract call into text.

Decodes `Error(string)`, `Panic(uint256)` and the custom errors of every contract in `compiled/`.
Any contract may have produced the data, so the text is made printable and bounded, and data that
cannot be decoded is shown in hex.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec

from ltzd.chain.contracts.artifacts import CONTRACTS, artifact, canonical_type, signature
from ltzd.values import keccak

ERROR: Final = keccak(b"Error(string)")[:4]
PANIC: Final = keccak(b"Panic(uint256)")[:4]

_MAX_LENGTH: Final = 200
"""Characters of a contract's own text, and of hex."""

_PANICS: Final = {
    0x00: "generic panic",
    0x01: "assertion failed",
    0x11: "arithmetic overflow or underflow",
    0x12: "division by zero",
    0x21: "value out of an enum's range",
    0x22: "storage byte array wrongly encoded",
    0x31: "pop of an empty array",
    0x32: "array index out of bounds",
    0x41: "too much memory allocated",
    0x51: "call of an uninitialised function",
}
"""Solidity's codes."""


class CustomError(msgspec.Struct, frozen=True):
    name: str
    fields: tuple[str, ...]
    types: tuple[str, ...]


def error_name(data: bytes) -> str:
    """The error's name, such as `ERC20InvalidReceiver` or `Panic`; an unknown error's selector.

    The name is empty for empty data, as of a bare `revert()`.
    """
    selector = data[:4]
    if selector == ERROR:
        return "Error"
    if selector == PANIC:
        return "Panic"
    known = _custom_errors().get(selector)
    return known.name if known else "0x" + selector.hex() if selector else ""


def describe(data: bytes) -> str:
    """The whole reason for a person: `ZeroAmount()`, `Panic: division by zero`, or plain text.

    A custom error with arguments reads `MintLimitExceeded(minter: 0x…, wanted: 5, available: 3)`.
    """
    if not data:
        return "reverted without a reason"
    try:
        return _decoded(data[:4], data[4:]) or _bounded("0x" + data.hex())
    except (ValueError, OverflowError):
        return _bounded(f"{error_name(data)} with malformed arguments 0x{data[4:].hex()}")


def _decoded(selector: bytes, body: bytes) -> str | None:
    """Return None for an unknown selector.

    Raises ValueError or OverflowError for malformed arguments.
    """
    if selector == ERROR:
        return _sentence(_abi_decode(["bytes"], body)[0])
    if selector == PANIC:
        code = _abi_decode(["uint256"], body)[0]
        return f"Panic: {_PANICS.get(code, f'code 0x{code:x}')}"
    known = _custom_errors().get(selector)
    if known is None:
        return None
    values = _abi_decode(list(known.types), body)
    arguments = (
        f"{field}: {_shown(value)}" for field, value in zip(known.fields, values, strict=True)
    )
    return f"{known.name}({_bounded(', '.join(arguments))})"


def _abi_decode(types: Sequence[str], body: bytes) -> tuple[Any, ...]:
    """Raises ValueError or OverflowError for malformed values."""
    # The library takes 16 MiB, and most processes never see a revert with arguments.
    from eth_abi.abi import decode  # noqa: PLC0415
    from eth_abi.exceptions import DecodingError  # noqa: PLC0415

    try:
        return decode(types, body)
    except DecodingError as error:
        raise ValueError("the values do not fit their types") from error


def _sentence(text: bytes) -> str:
    """Decode with replacement characters: bytes that are not UTF-8 must not hide the rest."""
    return (
        _printable(text[: 4 * _MAX_LENGTH].decode(errors="replace")) or "reverted without a reason"
    )


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return _printable(str(value))


def _printable(text: str) -> str:
    """Replace line breaks and terminal codes: the text goes into logs and answers."""
    return _bounded(
        "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    )


def _bounded(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"


@cache
def _custom_errors() -> dict[bytes, CustomError]:
    """By selector. Contracts that declare the same error mean the same by it."""
    return {
        keccak(signature(entry).encode())[:4]: _custom_error(entry)
        for contract in CONTRACTS
        for entry in artifact(contract)["abi"]
        if entry["type"] == "error"
    }


def _custom_error(entry: dict[str, Any]) -> CustomError:
    inputs = entry["inputs"]
    return CustomError(
        entry["name"],
        tuple(field["name"] or str(index) for index, field in enumerate(inputs)),
        tuple(map(canonical_type, inputs)),
    )
