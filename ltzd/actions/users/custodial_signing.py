"""Signs typed data with the keys of users' wallets: only messages that ltzd builds itself.

Each message type that may be signed has a builder that reads the data strictly, refuses unknown
members, and computes the digest from ltzd's own types (`chain/typed_data.py`). So the signature is
over the stated message, whatever `types` the caller sends. Nothing here signs a hash, a transaction
or a text.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal

import coincurve
import msgspec

from ltzd.chain import typed_data as eip712
from ltzd.chain.signing import address_of_public_key
from ltzd.chain.typed_data import Permit, TypedMessage, domain_separator, signature_of
from ltzd.values import Address, address_of

PrimaryType = Literal["Permit"]


class AllowedMessage(msgspec.Struct, frozen=True):
    """A message type that may be signed, and the only domain that it may be signed for."""

    primary_type: PrimaryType
    domain_name: str
    chain_id: int
    contract: Address


def ltz_permits(chain_id: int, ltz: Address) -> AllowedMessage:
    return AllowedMessage("Permit", eip712.DOMAIN_NAMES["LTZ"], chain_id, ltz)


def new_key() -> tuple[bytes, Address]:
    """Create a key from the operating system's randomness."""
    key = coincurve.PrivateKey()
    return key.secret, address_of_public_key(key.public_key.format(compressed=False)[1:])


def sign(
    secret: bytes,
    wallet: Address,
    typed_data: Mapping[str, Any],
    allowed: Collection[AllowedMessage],
) -> bytes:
    """Return 65 bytes (r, s, v of 27 or 28).

    Raises ValueError for a message that is not in `allowed`, not well-formed, or not the wallet's.
    """
    digest = digest_of(wallet, typed_data, allowed)
    signed = coincurve.PrivateKey(secret).sign_recoverable(digest, hasher=None)
    return signature_of(signed[64], signed[:32], signed[32:64])


def digest_of(
    wallet: Address, typed_data: Mapping[str, Any], allowed: Collection[AllowedMessage]
) -> bytes:
    """Raises ValueError."""
    try:
        kind = _kind_of(typed_data, allowed)
        message = _BUILDERS[kind.primary_type](typed_data["message"], wallet)
        _check_types(typed_data["types"], kind.primary_type)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the typed data is malformed: {type(error).__name__}") from error
    return eip712.digest(message, domain_separator(kind.domain_name, kind.chain_id, kind.contract))


def _kind_of(typed_data: Mapping[str, Any], allowed: Collection[AllowedMessage]) -> AllowedMessage:
    _check_members("typed data", typed_data, ("types", "primaryType", "domain", "message"))
    domain = typed_data["domain"]
    _check_members("domain", domain, ("name", "version", "chainId", "verifyingContract"))
    if domain["version"] != "1":
        raise ValueError("the domain's version is not one that ltzd signs for")
    for kind in allowed:
        if (
            typed_data["primaryType"] == kind.primary_type
            and domain["name"] == kind.domain_name
            and _uint(domain["chainId"]) == kind.chain_id
            and _address(domain["verifyingContract"]) == kind.contract
        ):
            return kind
    raise ValueError("ltzd does not sign this type of message for this domain")


def _permit(message: Mapping[str, Any], wallet: Address) -> Permit:
    _check_members("message", message, ("owner", "spender", "value", "nonce", "deadline"))
    owner = _address(message["owner"])
    if owner != wallet:
        raise ValueError("the permit's owner is not the wallet that would sign it")
    numbers = (_uint(message[name]) for name in ("value", "nonce", "deadline"))
    return Permit(owner, _address(message["spender"]), *numbers)


_BUILDERS: Final[Mapping[PrimaryType, Callable[[Mapping[str, Any], Address], TypedMessage]]] = {
    "Permit": _permit,
}
_TYPES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "EIP712Domain": (
        ("name", "string"),
        ("version", "string"),
        ("chainId", "uint256"),
        ("verifyingContract", "address"),
    ),
    "Permit": (
        ("owner", "address"),
        ("spender", "address"),
        ("value", "uint256"),
        ("nonce", "uint256"),
        ("deadline", "uint256"),
    ),
}


def _check_types(types: Mapping[str, Any], primary_type: PrimaryType) -> None:
    """Raises ValueError for unexpected types; the domain's type is optional."""
    if types.keys() - {"EIP712Domain"} != {primary_type}:
        raise ValueError("the data has other types than its message needs")
    for name, fields in types.items():
        if [(each["name"], each["type"]) for each in fields] != list(_TYPES[name]):
            raise ValueError(f"the type {name} is not as it is on chain")


def _check_members(what: str, given: Mapping[str, Any], members: Sequence[str]) -> None:
    if given.keys() != set(members):
        raise ValueError(f"the {what} must have exactly: {', '.join(members)}")


def _address(value: object) -> Address:
    if isinstance(value, bytes) and len(value) == 20:
        return Address(value)
    if isinstance(value, str):
        return address_of(value)
    raise ValueError("an address is 20 bytes, or 0x-hex text")


def _uint(value: object) -> int:
    """Parse an integer or its decimal digits; the digest refuses one that is too large."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 78:
        return int(value)
    raise ValueError("a number is an integer, or text of decimal digits")
