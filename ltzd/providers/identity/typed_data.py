"""EIP-712 data of any types: the signed digest, the signer, and the form that the provider takes.

eth-account encodes. The first use imports it: the import takes half a second, and most processes
never sign. eth-account is lenient: it takes a missing field for zero, any text for true or for
bytes, and an array of any length for one of a fixed length. A signature would then stand for other
data than the caller meant, so `_check` refuses such data first.

Data come in the usual JSON form (`types`, `primaryType`, `domain`, `message`), in which bytes may
be bytes or 0x-hex and integers numbers or text.
"""

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import coincurve

from ltzd.values import Address, bytes_of, hex_of, keccak

Types = Mapping[str, Any]
Encoder: TypeAlias = Callable[..., Any]

# Larger numbers in JSON are rounded by some readers.
_MAX_JSON_NUMBER = 2**53 - 1
_HALF_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141 // 2
_ARRAY = re.compile(r"(.+)\[([0-9]*)\]")
_INTEGER = re.compile(r"u?int[0-9]+")
_DOMAIN = "EIP712Domain"
_DOMAIN_FIELDS = {
    "name": "string",
    "version": "string",
    "chainId": "uint256",
    "verifyingContract": "address",
    "salt": "bytes32",
}


def digest_of(typed_data: Mapping[str, Any]) -> bytes:
    """Return the hash that a wallet signs. Raises ValueError for malformed data.

    The first call of a process imports eth-account.
    """
    encode, encoding_errors = _eth_account()
    try:
        types, domain = _all_types(typed_data), typed_data["domain"]
        if types[_DOMAIN] != _domain_type(domain):
            raise ValueError("the typed data are malformed: the domain's type is not the domain's")
        _check(types, _DOMAIN, domain)
        _check(types, typed_data["primaryType"], typed_data["message"])
        wire = to_wire(typed_data)
        # eth-account refuses types that the message does not use.
        used = _used_types(wire["types"], wire["primary_type"], {})
        message = encode(wire["domain"], used, wire["message"])
    except encoding_errors as error:
        raise ValueError(f"the typed data are malformed: {type(error).__name__}") from error
    return keccak(b"\x19" + message.version + message.header + message.body)


def to_wire(typed_data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data as the identity provider takes them, in values that JSON can hold.

    Raises ValueError for a value that JSON cannot hold exactly.
    """
    return {
        "types": _as_json(_all_types(typed_data)),
        "primary_type": typed_data["primaryType"],
        "domain": _as_json(typed_data["domain"]),
        "message": _as_json(typed_data["message"]),
    }


def normalised(signature: bytes) -> bytes:
    """Return the signature with v as 27 or 28; some wallets write 0 or 1."""
    if len(signature) == 65 and signature[64] in {0, 1}:
        return signature[:64] + bytes((signature[64] + 27,))
    return signature


def signer_of(digest: bytes, signature: bytes) -> Address:
    """Return the address that signed `digest`.

    Raises ValueError for a signature that contracts refuse: not 65 bytes, a v other than 27 and 28,
    or a high s.
    """
    if len(signature) != 65 or signature[64] not in {27, 28}:
        raise ValueError("not a signature of 65 bytes with v of 27 or 28")
    if int.from_bytes(signature[32:64], "big") > _HALF_ORDER:
        raise ValueError("the signature's s is above half the curve's order")
    recoverable = signature[:64] + bytes((signature[64] - 27,))
    try:
        key = coincurve.PublicKey.from_signature_and_message(recoverable, digest, hasher=None)
    except ValueError as error:
        raise ValueError("no key has made this signature") from error
    return Address(keccak(key.format(compressed=False)[1:])[-20:])


@cache
def _eth_account() -> tuple[Encoder, tuple[type[Exception], ...]]:
    """The library's encoder, and the classes that it raises for malformed data."""
    recursion_limit = sys.getrecursionlimit()
    from eth_abi.exceptions import EncodingError, ParseError  # noqa: PLC0415 - see above
    from eth_account.messages import encode_typed_data  # noqa: PLC0415

    # The import raises it to 100,000, which other decoders' stacks do not hold.
    sys.setrecursionlimit(recursion_limit)
    shape_errors = (KeyError, TypeError, AttributeError, RecursionError)
    return encode_typed_data, (*shape_errors, EncodingError, ParseError)


def _all_types(typed_data: Mapping[str, Any]) -> dict[str, Any]:
    """Add the domain's type where it is left out."""
    types = dict(typed_data["types"])
    types.setdefault(_DOMAIN, _domain_type(typed_data["domain"]))
    return types


def _domain_type(domain: Mapping[str, Any]) -> list[dict[str, str]]:
    """The domain's fields in EIP-712's order."""
    return [{"name": name, "type": kind} for name, kind in _DOMAIN_FIELDS.items() if name in domain]


def _used_types(types: Types, kind: str, used: dict[str, Any]) -> dict[str, Any]:
    """Add the struct types that values of `kind` are made of to `used`, and return it."""
    name = kind.partition("[")[0]
    if name in types and name not in used:
        used[name] = types[name]
        for field in types[name]:
            _used_types(types, field["type"], used)
    return used


def _check(types: Types, kind: str, value: Any) -> None:
    """Raises ValueError for a value that eth-account would take for another.

    Also raises KeyError or TypeError for a value of another shape than `kind`.
    """
    if array := _ARRAY.fullmatch(kind):
        if not isinstance(value, list | tuple) or (array[2] and len(value) != int(array[2])):
            raise ValueError(f"the typed data are malformed: a value is no {kind}")
        for item in value:
            _check(types, array[1], item)
    elif kind in types:
        for field in types[kind]:
            _check(types, field["type"], value[field["name"]])
    elif not _is_exactly(kind, value):
        raise ValueError(f"the typed data are malformed: a value is no {kind}")


def _is_exactly(kind: str, value: object) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "string":
        return isinstance(value, str)
    if kind == "address" or kind.startswith("bytes"):
        size = "20" if kind == "address" else kind.removeprefix("bytes")
        raw = bytes_of(value) if isinstance(value, str) else value
        return isinstance(raw, bytes) and (not size or len(raw) == int(size))
    # Without a size the hash would name a type that no contract has.
    is_integer = _INTEGER.fullmatch(kind) is not None
    return is_integer and isinstance(value, int | str) and not isinstance(value, bool)


def _as_json(value: object) -> object:
    match value:
        case bytes():
            return hex_of(value)
        case bool() | str():
            return value
        case int():
            return value if abs(value) <= _MAX_JSON_NUMBER else str(value)
        case Mapping():
            return {str(name): _as_json(item) for name, item in value.items()}
        case list() | tuple():
            return [_as_json(item) for item in value]
    raise ValueError(f"typed data hold no {type(value).__name__}")
