"""EIP-712 digests of the messages that users sign, by hand; eth-account is the oracle in the tests.

All types here have static fields only, so a struct hash is the keccak of the type hash and one word
for each field. Amounts are in LTZ's smallest unit, times in Unix seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final, get_args

import msgspec
from msgspec.structs import fields

from ltzd.chain.contracts import abi_words
from ltzd.chain.signing import CURVE_ORDER, signer_of
from ltzd.values import Address, Hash32, keccak

DOMAIN_NAMES: Final = {
    "LTZ": "Loyalty Token",
    "PerkNFT": "PerkNFT",
    "PointsSale": "PointsSale",
    "BusinessEscrow": "BusinessEscrow",
}
"""By contract; every domain's version is "1"."""

_DOMAIN_TYPE = keccak(
    b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)
_VERSION = keccak(b"1")
_HALF_ORDER = CURVE_ORDER // 2

_MEMBER_ENCODERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "address": abi_words.encode_address,
    "uint256": abi_words.encode_uint,
    "bytes32": abi_words.encode_bytes32,
}


class Permit(msgspec.Struct, frozen=True):
    """EIP-2612; its domain is LTZ's."""

    type: ClassVar = (
        "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
    )

    owner: Address
    spender: Address
    value: int
    nonce: int
    deadline: int


class TransferWithAuthorization(msgspec.Struct, frozen=True):
    """ERC-3009; its domain is LTZ's."""

    type: ClassVar = (
        "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,"
        "uint256 validBefore,bytes32 nonce)"
    )

    sender: Address
    recipient: Address
    value: int
    valid_after: int
    valid_before: int
    nonce: bytes


class Claim(msgspec.Struct, frozen=True):
    type: ClassVar = (
        "Claim(address user,uint256 collectionId,uint256 maxPrice,uint256 expectedClaims,"
        "bytes32 ref,uint256 deadline)"
    )

    user: Address
    collection_id: int
    max_price: int
    expected_claims: int
    reference: bytes
    deadline: int


class Buy(msgspec.Struct, frozen=True):
    type: ClassVar = (
        "Buy(address buyer,uint256 itemId,uint256 quantity,uint256 maxTotal,"
        "bytes32 ref,uint256 deadline)"
    )

    buyer: Address
    item_id: int
    quantity: int
    max_total: int
    reference: bytes
    deadline: int


class Release(msgspec.Struct, frozen=True):
    type: ClassVar = "Release(bytes32 dealId,uint256 deadline)"

    deal_id: bytes
    deadline: int


class Refund(msgspec.Struct, frozen=True):
    type: ClassVar = "Refund(bytes32 dealId,uint256 deadline)"

    deal_id: bytes
    deadline: int


TypedMessage = Permit | TransferWithAuthorization | Claim | Buy | Release | Refund
"""The fields are the members of `type`, in order."""


_Members = Sequence[tuple[str, Callable[[Any], bytes]]]


def _encoding_of(kind: type[TypedMessage]) -> tuple[bytes, _Members]:
    members = kind.type.partition("(")[2].split(",")
    encoders = [_MEMBER_ENCODERS[member.partition(" ")[0]] for member in members]
    names = [field.name for field in fields(kind)]
    return keccak(kind.type.encode()), list(zip(names, encoders, strict=True))


_ENCODINGS = {kind: _encoding_of(kind) for kind in get_args(TypedMessage)}
"""By message, its type hash, and each field with the encoder of its member."""


@lru_cache(maxsize=64)
def domain_separator(name: str, chain_id: int, contract: Address) -> bytes:
    """The separator of a domain of version "1"."""
    return keccak(
        _DOMAIN_TYPE
        + keccak(name.encode())
        + _VERSION
        + abi_words.encode_uint(chain_id)
        + abi_words.encode_address(contract)
    )


def digest(message: TypedMessage, separator: bytes) -> Hash32:
    """The hash that is signed. Raises ValueError for a field that its type cannot hold."""
    type_hash, members = _ENCODINGS[type(message)]
    words = [encode(getattr(message, field)) for field, encode in members]
    return Hash32(keccak(b"\x19\x01" + separator + keccak(b"".join((type_hash, *words)))))


def signature_of(v: int, r: bytes | int, s: bytes | int) -> bytes:
    """65 bytes (r, s, v). A v of 0 or 1, as of some wallets, becomes 27 or 28.

    Raises ValueError.
    """
    recovery = v + 27 if v in {0, 1} else v
    return _word(r) + _word(s) + bytes((recovery,))


def recover(message_digest: Hash32, signature: bytes) -> Address:
    """The signer's address. Accepts exactly the signatures that OpenZeppelin's ECDSA accepts.

    Raises ValueError for a signature that `check_form` refuses, or that no key can have made.
    """
    check_form(signature)
    signer = signer_of(message_digest, signature[:64] + bytes((signature[64] - 27,)))
    if signer is None:
        raise ValueError("no key can have made the signature")
    return signer


def check_form(signature: bytes) -> None:
    """Raises ValueError for a signature that is not 65 bytes, whose v is not 27 or 28, or whose s
    is in the upper half (a second form of the same signature).
    """
    if len(signature) != 65:
        raise ValueError(f"a signature has 65 bytes, this has {len(signature)}")
    if signature[64] not in {27, 28}:
        raise ValueError(f"a signature's v is 27 or 28, this has {signature[64]}")
    if int.from_bytes(signature[32:64], "big") > _HALF_ORDER:
        raise ValueError("the signature's s is above half the curve's order")


def _word(value: bytes | int) -> bytes:
    """Pad to a word: leading zeros are often left out of r and s."""
    number = int.from_bytes(value, "big") if isinstance(value, bytes) else value
    return abi_words.encode_uint(number)
