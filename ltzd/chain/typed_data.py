"""EIP-712 digests of the messages that users sign, by hand; eth-account is the oracle in the tests.

All types here have static fields only, so a struct hash is the keccak of the type hash and one word
for each field. Amounts are in LTZ's smallest unit, times in Unix seconds.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import coincurve

from ltzd.chain.contracts import abi_words
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
_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_HALF_ORDER = _ORDER // 2

_PERMIT = keccak(
    b"Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
)
_TRANSFER_WITH_AUTHORIZATION = keccak(
    b"TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,"
    b"uint256 validBefore,bytes32 nonce)"
)
_CLAIM = keccak(
    b"Claim(address user,uint256 collectionId,uint256 maxPrice,uint256 expectedClaims,"
    b"bytes32 ref,uint256 deadline)"
)
_BUY = keccak(
    b"Buy(address buyer,uint256 itemId,uint256 quantity,uint256 maxTotal,"
    b"bytes32 ref,uint256 deadline)"
)
_RELEASE = keccak(b"Release(bytes32 dealId,uint256 deadline)")
_REFUND = keccak(b"Refund(bytes32 dealId,uint256 deadline)")


@dataclass(frozen=True, slots=True)
class Permit:
    """EIP-2612; its domain is LTZ's."""

    owner: Address
    spender: Address
    value: int
    nonce: int
    deadline: int

    def struct_hash(self) -> bytes:
        return keccak(
            _PERMIT
            + abi_words.encode_address(self.owner)
            + abi_words.encode_address(self.spender)
            + abi_words.encode_uint(self.value)
            + abi_words.encode_uint(self.nonce)
            + abi_words.encode_uint(self.deadline)
        )


@dataclass(frozen=True, slots=True)
class TransferWithAuthorization:
    """ERC-3009; its domain is LTZ's."""

    sender: Address
    recipient: Address
    value: int
    valid_after: int
    valid_before: int
    nonce: bytes

    def struct_hash(self) -> bytes:
        return keccak(
            _TRANSFER_WITH_AUTHORIZATION
            + abi_words.encode_address(self.sender)
            + abi_words.encode_address(self.recipient)
            + abi_words.encode_uint(self.value)
            + abi_words.encode_uint(self.valid_after)
            + abi_words.encode_uint(self.valid_before)
            + abi_words.encode_bytes32(self.nonce)
        )


@dataclass(frozen=True, slots=True)
class Claim:
    user: Address
    collection_id: int
    max_price: int
    expected_claims: int
    reference: bytes
    deadline: int

    def struct_hash(self) -> bytes:
        return keccak(
            _CLAIM
            + abi_words.encode_address(self.user)
            + abi_words.encode_uint(self.collection_id)
            + abi_words.encode_uint(self.max_price)
            + abi_words.encode_uint(self.expected_claims)
            + abi_words.encode_bytes32(self.reference)
            + abi_words.encode_uint(self.deadline)
        )


@dataclass(frozen=True, slots=True)
class Buy:
    buyer: Address
    item_id: int
    quantity: int
    max_total: int
    reference: bytes
    deadline: int

    def struct_hash(self) -> bytes:
        return keccak(
            _BUY
            + abi_words.encode_address(self.buyer)
            + abi_words.encode_uint(self.item_id)
            + abi_words.encode_uint(self.quantity)
            + abi_words.encode_uint(self.max_total)
            + abi_words.encode_bytes32(self.reference)
            + abi_words.encode_uint(self.deadline)
        )


@dataclass(frozen=True, slots=True)
class Release:
    deal_id: bytes
    deadline: int

    def struct_hash(self) -> bytes:
        return keccak(
            _RELEASE + abi_words.encode_bytes32(self.deal_id) + abi_words.encode_uint(self.deadline)
        )


@dataclass(frozen=True, slots=True)
class Refund:
    deal_id: bytes
    deadline: int

    def struct_hash(self) -> bytes:
        return keccak(
            _REFUND + abi_words.encode_bytes32(self.deal_id) + abi_words.encode_uint(self.deadline)
        )


TypedMessage = Permit | TransferWithAuthorization | Claim | Buy | Release | Refund


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
    return Hash32(keccak(b"\x19\x01" + separator + message.struct_hash()))


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
    recoverable = signature[:64] + bytes((signature[64] - 27,))
    try:
        key = coincurve.PublicKey.from_signature_and_message(
            recoverable, message_digest, hasher=None
        )
    except Exception as error:
        # coincurve raises a bare Exception.
        raise ValueError("no key can have made the signature") from error
    return Address(keccak(key.format(compressed=False)[1:])[-20:])


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
    """Pads to a word: leading zeros are often left out of r and s."""
    number = int.from_bytes(value, "big") if isinstance(value, bytes) else value
    return abi_words.encode_uint(number)
