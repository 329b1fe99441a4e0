"""Calls, answers and logs of PerkNFT (contracts/src/IPerkNFT.sol).

The REGISTRAR's calls are in `offers`. Prices are in LTZ's smallest unit. The contract returns
references unchanged in its logs.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ltzd.chain.contracts import abi_words
from ltzd.chain.contracts.abi_words import LogReader, WordReader
from ltzd.errors import Broken
from ltzd.rules.indexer.contract_facts import (
    ChargeRedeemed,
    Claimed,
    CollectionBrandSet,
    CollectionCreated,
    CollectionUpdated,
    PerkFact,
    TokenTransferred,
)
from ltzd.rules.perk_charges import MOST_TOKEN_ID
from ltzd.values import Address, address_of, hex_of

CLAIM_FOR = abi_words.selector("claimFor(address,uint256,uint256,uint256,bytes32)")
REDEEM_CHARGE = abi_words.selector("redeemCharge(uint256,address,uint256,uint256,bytes32)")
COLLECTION = abi_words.selector("collection(uint256)")
CLAIMS_OF = abi_words.selector("claimsOf(address,uint256)")

TRANSFER_TOPIC = abi_words.topic("Transfer(address,address,uint256)")
CLAIMED_TOPIC = abi_words.topic("Claimed(uint256,address,uint256,uint256,uint256,bytes32)")
CHARGE_REDEEMED_TOPIC = abi_words.topic("ChargeRedeemed(uint256,address,bytes32,uint256,uint256)")
COLLECTION_UPDATED_TOPIC = abi_words.topic(
    "CollectionUpdated(uint256,address,uint96,uint32,uint16,bool)"
)
COLLECTION_BRAND_SET_TOPIC = abi_words.topic("CollectionBrandSet(uint256,address)")
COLLECTION_CREATED_TOPIC = abi_words.topic(
    "CollectionCreated(uint256,address,"
    "(address,address,uint96,uint32,uint16,uint16,bool,bool),string)"
)

INDEXED_TOPICS: Final = (
    TRANSFER_TOPIC,
    CHARGE_REDEEMED_TOPIC,
    COLLECTION_CREATED_TOPIC,
    COLLECTION_UPDATED_TOPIC,
    COLLECTION_BRAND_SET_TOPIC,
)
"""A `Claimed` never comes without a `Transfer`."""


class CollectionOnSale(msgspec.Struct, frozen=True):
    """A limit of 0 means no limit; `minted` counts all tokens so far."""

    brand: Address
    payout: Address
    price: int
    max_supply: int
    max_per_user: int
    charges: int
    is_active: bool
    requires_signature: bool
    minted: int


def claim_for_call(
    user: Address, collection_id: int, max_price: int, expected_claims: int, reference: bytes
) -> bytes:
    return b"".join(
        (
            CLAIM_FOR,
            abi_words.encode_address(user),
            abi_words.encode_uint(collection_id),
            abi_words.encode_uint(max_price),
            abi_words.encode_uint(expected_claims),
            abi_words.encode_bytes32(reference),
        )
    )


def redeem_charge_call(
    token: int, holder: Address, amount: int, expected_remaining: int, reference: bytes
) -> bytes:
    return b"".join(
        (
            REDEEM_CHARGE,
            abi_words.encode_uint(token),
            abi_words.encode_address(holder),
            abi_words.encode_uint(amount),
            abi_words.encode_uint(expected_remaining),
            abi_words.encode_bytes32(reference),
        )
    )


def claims_of_call(user: Address, collection_id: int) -> bytes:
    return CLAIMS_OF + abi_words.encode_address(user) + abi_words.encode_uint(collection_id)


def decode_claims(answer: bytes) -> int:
    """Raises ValueError."""
    reader = WordReader(answer)
    claims = reader.uint(16)
    reader.end()
    return claims


def collection_call(collection_id: int) -> bytes:
    return COLLECTION + abi_words.encode_uint(collection_id)


def decode_collection(answer: bytes) -> CollectionOnSale:
    """Leave out the URI. Raises ValueError."""
    reader = WordReader(answer)
    if reader.uint() != 32:
        raise ValueError("a collection's answer begins with its offset")
    return CollectionOnSale(
        brand=reader.address(),
        payout=reader.address(),
        price=reader.uint(96),
        max_supply=reader.uint(32),
        max_per_user=reader.uint(16),
        charges=reader.uint(16),
        is_active=reader.boolean(),
        requires_signature=reader.boolean(),
        minted=reader.uint(32),
    )


def decode_log(log: Mapping[str, Any]) -> PerkFact | None:
    """The fact in a log of PerkNFT, or None for an event that is not indexed (approvals, roles).

    Raises ValueError when such a log is malformed.
    """
    reader = LogReader(log)
    decode = _DECODERS.get(reader.topic)
    if decode is None:
        return None
    fact = decode(reader)
    reader.end()
    return fact


def decode_indexed_log(log: Mapping[str, Any]) -> PerkFact | None:
    """As `decode_log`. Raises Broken for a token id that PerkNFT cannot have given."""
    fact = decode_log(log)
    if isinstance(fact, TokenTransferred) and fact.token_id > MOST_TOKEN_ID:
        raise Broken(
            f"The contract at {hex_of(address_of(log['address']))} is no PerkNFT: it moved the "
            f"token {fact.token_id}; correct contracts.perk_nft"
        )
    return fact


def _transferred(reader: LogReader) -> TokenTransferred:
    indexed = reader.indexed
    return TokenTransferred(reader.position, indexed.address(), indexed.address(), indexed.uint())


def _claimed(reader: LogReader) -> Claimed:
    indexed, data = reader.indexed, reader.data
    return Claimed(
        reader.position,
        collection_id=indexed.uint(),
        user=indexed.address(),
        token_id=indexed.uint(),
        price=data.uint(),
        claims=data.uint(),
        reference=data.word(),
    )


def _redeemed(reader: LogReader) -> ChargeRedeemed:
    indexed, data = reader.indexed, reader.data
    return ChargeRedeemed(
        reader.position,
        token_id=indexed.uint(),
        holder=indexed.address(),
        reference=indexed.word(),
        amount=data.uint(),
        remaining=data.uint(),
    )


def _updated(reader: LogReader) -> CollectionUpdated:
    data = reader.data
    return CollectionUpdated(
        reader.position,
        collection_id=reader.indexed.uint(),
        payout=data.address(),
        price=data.uint(96),
        max_supply=data.uint(32),
        max_per_user=data.uint(16),
        is_active=data.boolean(),
    )


def _brand_set(reader: LogReader) -> CollectionBrandSet:
    return CollectionBrandSet(reader.position, reader.indexed.uint(), reader.indexed.address())


def _created(reader: LogReader) -> CollectionCreated:
    data = reader.data
    collection_id = reader.indexed.uint()
    reader.indexed.address()  # The brand once more.
    return CollectionCreated(
        reader.position,
        collection_id,
        brand=data.address(),
        payout=data.address(),
        price=data.uint(96),
        max_supply=data.uint(32),
        max_per_user=data.uint(16),
        charges=data.uint(16),
        is_active=data.boolean(),
        requires_signature=data.boolean(),
        # PostgreSQL's text holds no NUL.
        uri=data.last_bytes_argument().decode(errors="replace").replace("\x00", ""),
    )


_DECODERS: Final[Mapping[bytes, Callable[[LogReader], PerkFact]]] = {
    TRANSFER_TOPIC: _transferred,
    CLAIMED_TOPIC: _claimed,
    CHARGE_REDEEMED_TOPIC: _redeemed,
    COLLECTION_CREATED_TOPIC: _created,
    COLLECTION_UPDATED_TOPIC: _updated,
    COLLECTION_BRAND_SET_TOPIC: _brand_set,
}
