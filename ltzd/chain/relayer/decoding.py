"""Decodes the data of a relay strictly: encodings that no encoder writes are refused.

The functions come from the table of allowed calls, the arguments' names and types from the compiled
ABI. Decoded arguments are encoded again and compared with the data, so that the bytes that are sent
mean exactly what was checked.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from ltzd.chain.contracts import abi_words, artifacts
from ltzd.chain.contracts.abi_words import WordReader
from ltzd.chain.contracts.relayed import MULTICALL, multicall
from ltzd.errors import ValidationFailed
from ltzd.rules.relayer.allowed_calls import ALLOWED_CALLS, AllowedCall, functions_of
from ltzd.values import hex_of

_READERS: Final[Mapping[str, Callable[[WordReader], Any]]] = {
    "address": WordReader.address,
    "uint8": lambda read: read.uint(8),
    "uint40": lambda read: read.uint(40),
    "uint256": WordReader.uint,
    "bytes32": WordReader.word,
    "bytes": WordReader.last_bytes_argument,
}
_WRITERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "address": abi_words.encode_address,
    "uint8": lambda value: abi_words.encode_uint(value, 8),
    "uint40": lambda value: abi_words.encode_uint(value, 40),
    "uint256": abi_words.encode_uint,
    "bytes32": abi_words.encode_bytes32,
    "bytes": abi_words.encode_bytes,
}


class DecodedCall(msgspec.Struct, frozen=True):
    """A call of a function of the table; arguments by their names in the ABI."""

    row: AllowedCall
    arguments: Mapping[str, Any]
    data: bytes

    def signed(self) -> tuple[tuple[Any, ...], bytes]:
        """The signed message's fields, and the signature: the last argument, or the last three."""
        *fields, last = self.arguments.values()
        if "sig" in self.arguments:
            return tuple(fields), last
        *fields, v, r = fields
        return tuple(fields), r + last + bytes((v,))


def calls_in(contract: str, data: bytes) -> list[DecodedCall]:
    """The call, or the one or two calls of a multicall. Raises ValidationFailed."""
    if data[:4] != MULTICALL:
        return [_call_in(contract, data)]
    inner = _multicall_in(contract, data)
    if len(inner) not in {1, 2}:
        raise ValidationFailed(
            "A multicall must hold one call, or one permit followed by one call",
            contract=contract,
            calls=len(inner),
        )
    return [_call_in(contract, call) for call in inner]


def _multicall_in(contract: str, data: bytes) -> list[bytes]:
    read = WordReader(data[4:])
    try:
        inner = read.last_bytes_list_argument()
        read.end()
    except ValueError as error:
        raise _misencoded(contract, "multicall", str(error)) from error
    if multicall(inner) != data:
        raise _misencoded(
            contract, "multicall", "the bytes are not the canonical encoding of these values"
        )
    return inner


def _call_in(contract: str, data: bytes) -> DecodedCall:
    if data[:4] == MULTICALL:
        raise ValidationFailed("A multicall must not hold another", contract=contract)
    shape = _shapes().get((contract, data[:4]))
    if shape is None:
        raise ValidationFailed(
            f"This function of {contract} may not be relayed",
            contract=contract,
            selector=hex_of(data[:4]),
            allowed=functions_of(contract),
        )
    return DecodedCall(shape.row, shape.arguments_in(data), data)


class _Shape(msgspec.Struct, frozen=True):
    """The encoding of a function of the table: argument types by name, dynamic ones last."""

    row: AllowedCall
    selector: bytes
    types: Mapping[str, str]

    def arguments_in(self, data: bytes) -> dict[str, Any]:
        read = WordReader(data[4:])
        try:
            arguments = {name: _READERS[kind](read) for name, kind in self.types.items()}
            read.end()
        except ValueError as error:
            raise _misencoded(self.row.contract, self.row.function, str(error)) from error
        if self._written(arguments) != data:
            raise _misencoded(
                self.row.contract,
                self.row.function,
                "the bytes are not the canonical encoding of these values",
            )
        return arguments

    def _written(self, arguments: Mapping[str, Any]) -> bytes:
        written = [self.selector]
        for name, kind in self.types.items():
            if kind == "bytes":
                written.append(abi_words.encode_uint(32 * len(self.types)))
            written.append(_WRITERS[kind](arguments[name]))
        return b"".join(written)


@cache
def _shapes() -> Mapping[tuple[str, bytes], _Shape]:
    """By contract and selector."""
    shapes = [_shape_of(row) for row in ALLOWED_CALLS]
    return {(shape.row.contract, shape.selector): shape for shape in shapes}


def _shape_of(row: AllowedCall) -> _Shape:
    (entry,) = [
        entry
        for entry in artifacts.artifact(row.contract)["abi"]
        if entry["type"] == "function" and entry["name"] == row.function
    ]
    types = {field["name"]: field["type"] for field in entry["inputs"]}
    return _Shape(row, artifacts.selector(row.contract, row.function), types)


def _misencoded(contract: str, function: str, reason: str) -> ValidationFailed:
    return ValidationFailed(
        f"The data of {contract}.{function} is not encoded as its ABI says: {reason}",
        contract=contract,
        function=function,
    )
