"""PerkNFT's calls, answers and logs (contracts/src/IPerkNFT.sol); what registrars do: `offers`.

Prices are LTZ's smallest unit. References mean nothing to the contract; they come back in its logs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ltzd.chain.contracts import abi, abi_words
from ltzd.chain.contracts.abi_words import LogReader, WordReader
from ltzd.chain.typed_data import Claim
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
CHARGES_OF = abi_words.selector("chargesOf(uint256)")
CLAIMS_OF = abi_words.selector("claimsOf(address,uint256)")
OWNER_OF = abi_words.selector("ownerOf(uint256)")

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

_SERIAL_BITS = 32


@dataclass(frozen=True, slots=True)
class Charges:
    remaining: int
    total: int


def token_id(collection_id: int, serial: int) -> int:
    return collection_id << _SERIAL_BITS | serial


def collection_of(token: int) -> int:
    return token >> _SERIAL_BITS


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


def claim_with_sig_call(claim: Claim, signature: bytes) -> bytes:
    return abi.call(
        "PerkNFT",
        "claimWithSig",
        claim.user,
        claim.collection_id,
        claim.max_price,
        claim.expected_claims,
        claim.reference,
        claim.deadline,
        signature,
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


def charges_of_call(token: int) -> bytes:
    return CHARGES_OF + abi_words.encode_uint(token)


def decode_charges(answer: bytes) -> Charges:
    """Raises ValueError."""
    read = WordReader(answer)
    charges = Charges(read.uint(16), read.uint(16))
    read.end()
    return charges


def claims_of_call(user: Address, collection_id: int) -> bytes:
    return CLAIMS_OF + abi_words.encode_address(user) + abi_words.encode_uint(collection_id)


def decode_claims(answer: bytes) -> int:
    """Raises ValueError."""
    read = WordReader(answer)
    claims = read.uint(16)
    read.end()
    return claims


def collection_call(collection_id: int) -> bytes:
    return COLLECTION + abi_words.encode_uint(collection_id)


def decode_max_per_user(answer: bytes) -> int | None:
    """Of a collection; None where it sets none. Raises ValueError."""
    read = WordReader(answer)
    if read.uint() != 32:
        raise ValueError("a collection's answer begins with its offset")
    read.address(), read.address(), read.uint(96), read.uint(32)
    return read.uint(16) or None


def owner_of_call(token: int) -> bytes:
    return OWNER_OF + abi_words.encode_uint(token)


def decode_owner(answer: bytes) -> Address:
    """Raises ValueError."""
    read = WordReader(answer)
    owner = read.address()
    read.end()
    return owner


def decode_log(log: Mapping[str, Any]) -> PerkFact | None:
    """The fact in a log of PerkNFT; None for one that ltzd keeps no record of (an approval, say).

    Raises ValueError when such a log is malformed.
    """
    read = LogReader(log)
    reading = _READERS.get(read.topic)
    if reading is not None:
        fact = reading(read)
        read.end()
        return fact
    return _created(read, log) if read.topic == COLLECTION_CREATED_TOPIC else None


def decode_indexed_log(log: Mapping[str, Any]) -> PerkFact | None:
    """As `decode_log`. Raises Broken for a token id that PerkNFT cannot have given."""
    fact = decode_log(log)
    if isinstance(fact, TokenTransferred) and fact.token_id > MOST_TOKEN_ID:
        raise Broken(
            f"The contract at {hex_of(address_of(log['address']))} is no PerkNFT: it moved the "
            f"token {fact.token_id}; correct contracts.perk_nft"
        )
    return fact


def _transferred(read: LogReader) -> TokenTransferred:
    indexed = read.indexed
    return TokenTransferred(read.position, indexed.address(), indexed.address(), indexed.uint())


def _claimed(read: LogReader) -> Claimed:
    indexed, data = read.indexed, read.data
    return Claimed(
        read.position,
        collection_id=indexed.uint(),
        user=indexed.address(),
        token_id=indexed.uint(),
        price=data.uint(),
        claims=data.uint(),
        reference=data.word(),
    )


def _redeemed(read: LogReader) -> ChargeRedeemed:
    indexed, data = read.indexed, read.data
    return ChargeRedeemed(
        read.position,
        token_id=indexed.uint(),
        holder=indexed.address(),
        reference=indexed.word(),
        amount=data.uint(),
        remaining=data.uint(),
    )


def _updated(read: LogReader) -> CollectionUpdated:
    data = read.data
    return CollectionUpdated(
        read.position,
        collection_id=read.indexed.uint(),
        payout=data.address(),
        price=data.uint(96),
        max_supply=data.uint(32),
        max_per_user=data.uint(16),
        is_active=data.boolean(),
    )


def _given(read: LogReader) -> CollectionBrandSet:
    return CollectionBrandSet(read.position, read.indexed.uint(), read.indexed.address())


def _created(read: LogReader, log: Mapping[str, Any]) -> CollectionCreated:
    """Rare, and with text of any length in it: by eth-abi."""
    event = abi.decode_log("PerkNFT", log)
    if event is None:
        raise ValueError("CollectionCreated has two indexed arguments")
    said = event.arguments
    uri = said["uri"].replace("\x00", "")  # which no text in PostgreSQL can hold
    return CollectionCreated(read.position, said["collectionId"], *(*said["params"], uri))


_READERS: Final[Mapping[bytes, Callable[[LogReader], PerkFact]]] = {
    TRANSFER_TOPIC: _transferred,
    CLAIMED_TOPIC: _claimed,
    CHARGE_REDEEMED_TOPIC: _redeemed,
    COLLECTION_UPDATED_TOPIC: _updated,
    COLLECTION_BRAND_SET_TOPIC: _given,
}
