"""Decides whether a brand may redeem charges of a token, from the index and pending redemptions.

Raises TokenNotFound, CollectionNotFound, ValidationFailed, HolderChanged, NoChargesRemaining.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from ltzd.errors import (
    CollectionNotFound,
    HolderChanged,
    NoChargesRemaining,
    TokenNotFound,
    ValidationFailed,
)
from ltzd.values import Address, checksummed

SERIAL_BITS = 32
MOST_TOKEN_ID = 2**95 - 1
"""ltzd counts collections in 63 bits."""

_FIXED_BITS = 0xF << 76 | 0x3 << 62
_VERSION_8 = 0x8 << 76 | 0x2 << 62


class Token(msgspec.Struct, frozen=True):
    """A token as indexed. `block_number` is the block of the newest fact about it."""

    id: int
    collection_id: int
    holder: Address
    max_charges: int
    used: int
    claimed_at: datetime
    last_redeemed_at: datetime | None
    block_number: int

    @property
    def remaining(self) -> int:
        return self.max_charges - self.used


def keyed_id(digest: bytes) -> UUID:
    """Return the id of a redemption with an idempotency key: a UUID of version 8 (RFC 9562).

    `digest` is a secret function of brand and key. So a repeated request has the same id, which the
    chain knows too, and nobody else can compute it.
    """
    return UUID(int=int.from_bytes(digest[:16]) & ~_FIXED_BITS | _VERSION_8)


def check_collection_owner(collection_id: int, owner: Address | None, brand: Address) -> None:
    """`owner` is the collection's brand, or None if there is no such collection."""
    if owner is None:
        raise CollectionNotFound("Collection not found", collectionId=collection_id)
    if owner != brand:
        raise ValidationFailed(
            "The collection belongs to another brand", collectionId=collection_id
        )


def token_of(token: Token | None, token_id: int, collection_id: int) -> Token:
    """`tokenId` is text in errors, as in every answer: no JSON number can hold it exactly."""
    if token is None or token.collection_id != collection_id:
        raise TokenNotFound(
            "Token not found in the collection", collectionId=collection_id, tokenId=str(token_id)
        )
    return token


def wallet_of(token_id: int, wallets: Sequence[Address]) -> Address | None:
    """The wallet that redeems all charges of the token, so that they are mined in order."""
    return sorted(wallets)[token_id % len(wallets)] if wallets else None


def remaining_before(token: Token, amount: int, holder: Address | None, pending: int) -> int:
    """How many charges are left before this redemption, after `pending` charges before it."""
    if holder is not None and holder != token.holder:
        raise HolderChanged(
            "The token is no longer held by userAddress",
            tokenId=str(token.id),
            holder=checksummed(token.holder),
        )
    left = token.remaining - pending
    if left < amount:
        raise NoChargesRemaining(
            "The token does not have enough charges left",
            tokenId=str(token.id),
            chargesRemaining=max(0, left),
            requested=amount,
        )
    return left
