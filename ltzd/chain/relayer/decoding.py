"""The data of a relay, read strictly: what no encoder would write is refused.

The arguments' names and types come from the compiled ABI, the functions from the table. What was
read is written again and compared, so that the bytes which go out are those that were judged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

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


@dataclass(frozen=True, slots=True)
class DecodedCall:
    """One call of a function of the table; arguments by their names in the ABI."""

    row: AllowedCall
    arguments: Mapping[str, Any]
    data: bytes

    def signed(self) -> tuple[tuple[Any, ...], bytes]:
        """The fields of the message, and the signature: the last argument, or the last three."""
        *fields, last = self.arguments.values()
        if "sig" in self.arguments:
            return tuple(fields), last
        *fields, v, r = fields
        return tuple(fields), r + last + bytes((v,))


def calls_in(contract: str, data: bytes) -> list[DecodedCall]:
    """The call, or a multicall's calls: one or two. Raises ValidationFailed."""
    if data[:4] != MULTICALL:
        return [_call_in(contract, data)]
    inner = _multicall_in(contract, data)
    if len(inner) not in {1, 2}:
        raise ValidationFailed(
            "A multicall holds one call, or one permit and the call behind it",
            contract=contract,
            calls=len(inner),
        )
    return [_call_in(contract, each) for each in inner]


def _multicall_in(contract: str, data: bytes) -> list[bytes]:
    read = WordReader(data[4:])
    try:
        inner = read.last_bytes_list_argument()
        read.end()
    except ValueError as error:
        raise _misencoded(contract, "multicall", str(error)) from error
    if multicall(inner) != data:
        raise _misencoded(contract, "multicall", "an encoder would write it differently")
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


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a function of the table is called; `types` by argument, dynamic ones last."""

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
                self.row.contract, self.row.function, "an encoder would write it differently"
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
        each
        for each in artifacts.artifact(row.contract)["abi"]
        if each["type"] == "function" and each["name"] == row.function
    ]
    types = {one["name"]: one["type"] for one in entry["inputs"]}
    return _Shape(row, artifacts.selector(row.contract, row.function), types)


def _misencoded(contract: str, function: str, reason: str) -> ValidationFailed:
    return ValidationFailed(
        f"The data of {contract}.{function} is not encoded as its ABI says: {reason}",
        contract=contract,
        function=function,
    )
