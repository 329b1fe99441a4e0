"""Facts of PerkNFT, PointsSale and BusinessEscrow: their logs, decoded.

Amounts and prices are in LTZ's smallest unit, times in Unix seconds, references are 32 bytes.
"""

from typing import ClassVar

import msgspec

from ltzd.rules.indexer.log_position import LogPosition
from ltzd.values import Address


class TokenTransferred(msgspec.Struct, frozen=True):
    """A claim is a transfer from the zero address."""

    kind: ClassVar[str] = "perk_transfer"

    position: LogPosition
    sender: Address
    recipient: Address
    token_id: int


class Claimed(msgspec.Struct, frozen=True):
    """`claims` counts the user's claims of the collection, this one included."""

    kind: ClassVar[str] = "claim"

    position: LogPosition
    collection_id: int
    user: Address
    token_id: int
    price: int
    claims: int
    reference: bytes


class ChargeRedeemed(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "redemption"

    position: LogPosition
    token_id: int
    holder: Address
    reference: bytes
    amount: int
    remaining: int


class CollectionCreated(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "collection"

    position: LogPosition
    collection_id: int
    brand: Address
    payout: Address
    price: int
    max_supply: int
    max_per_user: int
    charges: int
    is_active: bool
    requires_signature: bool
    uri: str


class CollectionUpdated(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "collection"

    position: LogPosition
    collection_id: int
    payout: Address
    price: int
    max_supply: int
    max_per_user: int
    is_active: bool


class CollectionBrandSet(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "collection"

    position: LogPosition
    collection_id: int
    brand: Address


class ItemSet(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "item"

    position: LogPosition
    item_id: int
    brand: Address
    payout: Address
    price: int
    stock: int
    sold: int
    max_per_order: int
    is_active: bool
    burns: bool
    metadata: bytes


class Purchased(msgspec.Struct, frozen=True):
    """`paid` is the total for `quantity`."""

    kind: ClassVar[str] = "purchase"

    position: LogPosition
    item_id: int
    buyer: Address
    reference: bytes
    quantity: int
    paid: int


class DealLocked(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "deal"

    position: LogPosition
    deal_id: bytes
    user: Address
    business: Address
    amount: int
    refund_after: int


class DealReleased(msgspec.Struct, frozen=True):
    """The business was paid; `by` made the decision."""

    kind: ClassVar[str] = "deal"

    position: LogPosition
    deal_id: bytes
    user: Address
    business: Address
    amount: int
    by: Address


class DealRefunded(msgspec.Struct, frozen=True):
    """The user was paid back; `by` made the decision, or sent the reclaim."""

    kind: ClassVar[str] = "deal"

    position: LogPosition
    deal_id: bytes
    user: Address
    business: Address
    amount: int
    by: Address


class DealSplit(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "deal"

    position: LogPosition
    deal_id: bytes
    user: Address
    business: Address
    to_user: int
    to_business: int


PerkFact = (
    TokenTransferred
    | Claimed
    | ChargeRedeemed
    | CollectionCreated
    | CollectionUpdated
    | CollectionBrandSet
)
SaleFact = ItemSet | Purchased
EscrowFact = DealLocked | DealReleased | DealRefunded | DealSplit
