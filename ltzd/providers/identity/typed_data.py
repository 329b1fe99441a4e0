"""EIP-712 data of any types: the digest that is signed, who signed it, and its form on the wire.

Takes the usual JSON form (`types`, `primaryType`, `domain`, `message`), in which bytes may be bytes
or 0x-hex and integers numbers or text. eth-account is the oracle in the tests; it is not used here
because it takes half a second to import and raises the interpreter's recursion limit.
"""

import re
from collections.abc import Mapping
from typing import Any

import coincurve
from eth_hash.auto import keccak

from ltzd.values import Address, bytes_of, hex_of

Types = Mapping[str, Any]

# Beyond it a JSON number is not the same number to everybody.
_LARGEST_JSON_NUMBER = 2**53 - 1
_HALF_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141 // 2
_ARRAY = re.compile(r"(.+)\[([0-9]*)\]")
_SIZED = re.compile(r"(u?int|bytes)([0-9]+)")
_DOMAIN = "EIP712Domain"
_DOMAIN_FIELDS = {
    "name": "string",
    "version": "string",
    "chainId": "uint256",
    "verifyingContract": "address",
    "salt": "bytes32",
}


def digest_of(typed_data: Mapping[str, Any]) -> bytes:
    """Raises ValueError."""
    try:
        domain, types = typed_data["domain"], _all_types(typed_data)
        message = _struct_hash(types, typed_data["primaryType"], typed_data["message"])
        return keccak(b"\x19\x01" + _struct_hash(types, _DOMAIN, domain) + message)
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"this is no typed data: {type(error).__name__}") from error


def on_the_wire(typed_data: Mapping[str, Any]) -> dict[str, object]:
    """As the identity provider wants it, in values that JSON can hold."""
    return {
        "types": _as_json(_all_types(typed_data)),
        "primary_type": typed_data["primaryType"],
        "domain": _as_json(typed_data["domain"]),
        "message": _as_json(typed_data["message"]),
    }


def normalised(signature: bytes) -> bytes:
    """v as 27 or 28, however the wallet tells it."""
    if len(signature) == 65 and signature[64] in {0, 1}:
        return signature[:64] + bytes((signature[64] + 27,))
    return signature


def signer_of(digest: bytes, signature: bytes) -> Address:
    """Only what contracts accept: 65 bytes, v of 27 or 28, a low s. Raises ValueError."""
    if len(signature) != 65 or signature[64] not in {27, 28}:
        raise ValueError("not a signature of 65 bytes with v of 27 or 28")
    if int.from_bytes(signature[32:64], "big") > _HALF_ORDER:
        raise ValueError("the signature's s is above half the curve's order")
    recoverable = signature[:64] + bytes((signature[64] - 27,))
    try:
        key = coincurve.PublicKey.from_signature_and_message(recoverable, digest, hasher=None)
    except Exception as error:
        # libsecp256k1's refusals come as bare Exception.
        raise ValueError("the signature is nobody's") from error
    return Address(keccak(key.format(compressed=False)[1:])[-20:])


def _all_types(typed_data: Mapping[str, Any]) -> dict[str, Any]:
    """With the domain's own type, which some leave out: it has the fields that the domain has."""
    types = dict(typed_data["types"])
    domain = typed_data["domain"]
    fields = [
        {"name": name, "type": kind} for name, kind in _DOMAIN_FIELDS.items() if name in domain
    ]
    types.setdefault(_DOMAIN, fields)
    return types


def _struct_hash(types: Types, name: str, value: Mapping[str, Any]) -> bytes:
    fields = (_word(types, field["type"], value[field["name"]]) for field in types[name])
    return keccak(keccak(_type_text(types, name).encode()) + b"".join(fields))


def _type_text(types: Types, name: str) -> str:
    """The type and after it, in their order, those that it is made of."""
    others = sorted(_made_of(types, name, set()) - {name})
    return "".join(
        f"{each}({','.join(field['type'] + ' ' + field['name'] for field in types[each])})"
        for each in (name, *others)
    )


def _made_of(types: Types, name: str, seen: set[str]) -> set[str]:
    base = name.partition("[")[0]
    if base in types and base not in seen:
        seen.add(base)
        for field in types[base]:
            _made_of(types, field["type"], seen)
    return seen


def _word(types: Types, kind: str, value: Any) -> bytes:
    """What stands for the value in the hash of whatever holds it: 32 bytes."""
    if array := _ARRAY.fullmatch(kind):
        if array[2] and len(value) != int(array[2]):
            raise ValueError(f"{kind} holds {len(value)} values")
        return keccak(b"".join(_word(types, array[1], each) for each in value))
    if kind in types:
        return _struct_hash(types, kind, value)
    match kind:
        case "string":
            return keccak(value.encode())
        case "bytes":
            return keccak(_raw(value))
        case "bool" if isinstance(value, bool):
            return value.to_bytes(32, "big")
        case "address":
            return bytes(12) + _exactly(_raw(value), 20)
    return _sized_word(kind, value)


def _sized_word(kind: str, value: Any) -> bytes:
    sized = _SIZED.fullmatch(kind)
    if sized is None:
        raise ValueError("a field's type is unknown")
    size = int(sized[2])
    if sized[1] == "bytes":
        return _exactly(_raw(value), size).ljust(32, b"\0")
    number, is_signed = _number(value), sized[1] == "int"
    number.to_bytes(size // 8, "big", signed=is_signed)
    return number.to_bytes(32, "big", signed=is_signed)


def _number(value: int | str) -> int:
    if isinstance(value, bool):
        raise ValueError("a boolean is no number")
    if isinstance(value, str):
        return int(value, 16 if value.startswith("0x") else 10)
    return value


def _raw(value: bytes | str) -> bytes:
    return bytes_of(value) if isinstance(value, str) else bytes(value)


def _exactly(raw: bytes, size: int) -> bytes:
    if len(raw) != size:
        raise ValueError(f"{size} bytes are wanted, not {len(raw)}")
    return raw


def _as_json(value: object) -> object:
    match value:
        case bytes():
            return hex_of(value)
        case bool() | str():
            return value
        case int():
            return value if abs(value) <= _LARGEST_JSON_NUMBER else str(value)
        case Mapping():
            return {str(name): _as_json(each) for name, each in value.items()}
        case list() | tuple():
            return [_as_json(each) for each in value]
    raise ValueError(f"typed data hold no {type(value).__name__}")
