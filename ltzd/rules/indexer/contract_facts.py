"""Facts of PerkNFT, PointsSale and BusinessEscrow: their logs, decoded.

Amounts and prices are in LTZ's smallest unit, times in Unix seconds, references are 32 bytes.
"""

from dataclasses import dataclass
from typing import ClassVar

from ltzd.rules.indexer.log_position import LogPosition
from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class TokenTransferred:
    """A claim is a transfer from the zero address."""

    kind: ClassVar[str] = "perk_transfer"

    position: LogPosition
    sender: Address
    recipient: Address
    token_id: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """`claims` counts the user's claims of the collection, this one included."""

    kind: ClassVar[str] = "claim"

    position: LogPosition
    collection_id: int
    user: Address
    token_id: int
    price: int
    claims: int
    reference: bytes


@dataclass(frozen=True, slots=True)
class ChargeRedeemed:
    kind: ClassVar[str] = "redemption"

    position: LogPosition
    token_id: int
    holder: Address
    reference: bytes
    amount: int
    remaining: int


@dataclass(frozen=True, slots=True)
class CollectionCreated:
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


@dataclass(frozen=True, slots=True)
class CollectionUpdated:
    kind: ClassVar[str] = "collection"

    position: LogPosition
    collection_id: int
    payout: Address
    price: int
    max_supply: int
    max_per_user: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class CollectionBrandSet:
    kind: ClassVar[str] = "collection"

    position: LogPosition
    collection_id: int
    brand: Address


@dataclass(frozen=True, slots=True)
class ItemSet:
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


@dataclass(frozen=True, slots=True)
class Purchased:
    """`paid` is the total for `quantity`."""

    kind: ClassVar[str] = "purchase"

    position: LogPosition
    item_id: int
    buyer: Address
    reference: bytes
    quantity: int
    paid: int


@dataclass(frozen=True, slots=True)
class DealLocked:
    kind: ClassVar[str] = "deal"

    position: LogPosition
    deal_id: bytes
    user: Address
    business: Address
    amount: int
    refund_after: int


@dataclass(frozen=True, slots=True)
class DealReleased:
    """The business was paid; `by` made the decision."""

    kind: ClassVar[str] = "deal"

    position: LogPosition
    deal_id: bytes
    user: Address
    business: Address
    amount: int
    by: Address


@dataclass(frozen=True, slots=True)
class DealRefunded:
    """The user was paid back; `by` made the decision, or sent the reclaim."""

    kind: ClassVar[str] = "deal"

    position: LogPosition
    deal_id: bytes
    user: Address
    business: Address
    amount: int
    by: Address


@dataclass(frozen=True, slots=True)
class DealSplit:
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
