"""Facts of PerkNFT, PointsSale and BusinessEscrow: their logs, decoded.

Amounts and prices are LTZ's smallest unit, times Unix seconds, references 32 bytes. As in `facts`,
a fact's identity is (block hash, log index).
"""

from dataclasses import dataclass

from ltzd.values import Address, Hash32


@dataclass(frozen=True, slots=True)
class Place:
    """Where on the chain a log stands."""

    block_number: int
    block_hash: Hash32
    log_index: int
    transaction_hash: Hash32


@dataclass(frozen=True, slots=True)
class TokenTransferred:
    """A claim is one from the zero address."""

    place: Place
    sender: Address
    recipient: Address
    token_id: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """`claims` counts the user's claims of the collection, this one included."""

    place: Place
    collection_id: int
    user: Address
    token_id: int
    price: int
    claims: int
    reference: bytes


@dataclass(frozen=True, slots=True)
class ChargeRedeemed:
    place: Place
    token_id: int
    holder: Address
    reference: bytes
    amount: int
    remaining: int


@dataclass(frozen=True, slots=True)
class CollectionCreated:
    place: Place
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
    place: Place
    collection_id: int
    payout: Address
    price: int
    max_supply: int
    max_per_user: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class CollectionBrandSet:
    place: Place
    collection_id: int
    brand: Address


@dataclass(frozen=True, slots=True)
class ItemSet:
    place: Place
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
    """`paid` is for all of them."""

    place: Place
    item_id: int
    buyer: Address
    reference: bytes
    quantity: int
    paid: int


@dataclass(frozen=True, slots=True)
class DealLocked:
    place: Place
    deal_id: bytes
    user: Address
    business: Address
    amount: int
    refund_after: int


@dataclass(frozen=True, slots=True)
class DealReleased:
    """The business was paid; `by` decided so."""

    place: Place
    deal_id: bytes
    user: Address
    business: Address
    amount: int
    by: Address


@dataclass(frozen=True, slots=True)
class DealRefunded:
    """The user was paid back; `by` decided so, or sent the reclaim."""

    place: Place
    deal_id: bytes
    user: Address
    business: Address
    amount: int
    by: Address


@dataclass(frozen=True, slots=True)
class DealSplit:
    place: Place
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
