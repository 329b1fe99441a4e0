"""The demo brand's two collections, its item and a business, put on the dev chain once.

By the same calls and the same sending as `ltzd collection | item | business`. What the chain has is
left as it is: somebody may have changed it. So the chain alone says what is still to be done,
however often and wherever a start before was killed.
"""

from typing import Any

from ltzd.chain.contracts import offers
from ltzd.chain.contracts.offers import (
    CollectionSettings,
    ItemSettings,
    OfferContracts,
    OfferReader,
)
from ltzd.chain.deployment.cold_wallet import ColdWallet
from ltzd.chain.node.rpc import Rpc
from ltzd.chain.signing import Signer
from ltzd.errors import Broken
from ltzd.rules.amounts import ltz_of
from ltzd.rules.brands.configuration import Brand, Perk
from ltzd.rules.operator.fees import FeePolicy
from ltzd.values import LTZ, Address, LtzUnits, checksummed

_FEES = FeePolicy(cap=10**18)
"""A dev chain's fees are its own; on a full one they may climb over any cap."""
_PATIENCE_SECONDS = 60.0

ITEM_ID = 1


def collection_terms(brand: Address) -> list[CollectionSettings]:
    """Of collections 1 and 2 (choices.md); a user can pay for both claims with one welcome."""
    return [
        _terms(brand, ltz=0, max_per_user=1, charges=3),
        _terms(brand, ltz=40, max_per_user=2, charges=10),
    ]


def item_terms(brand: Address) -> ItemSettings:
    return ItemSettings(
        brand=brand,
        payout=brand,
        price=LtzUnits(15 * LTZ),
        stock=1_000_000,
        max_per_order=5,
        active=True,
        burns=False,
    )


async def stand(
    rpc: Rpc, contracts: OfferContracts, registrar: Signer, brand: Brand, business: Address
) -> dict[str, Any]:
    """Create what the chain lacks; answers dev.json's `collections`, `items`, `businesses`."""
    wallet = ColdWallet(rpc, registrar, _FEES, _PATIENCE_SECONDS)
    # A start that was killed may have something under way: it counts as soon as it is mined.
    await wallet.quiet()
    found = OfferReader(rpc, contracts)
    calls = [
        *await _missing_collections(found, contracts, brand.address),
        *await _missing_others(found, contracts, brand.address, business),
    ]
    if calls:
        await wallet.send_all(calls, told=lambda _: None)
    return {
        "collections": [
            await _collection(found, perk) for perk in brand.perks if perk.collection_id
        ],
        "items": [await _item(found, perk) for perk in brand.perks if perk.item_id],
        "businesses": [checksummed(business)],
    }


async def _missing_collections(
    found: OfferReader, contracts: OfferContracts, brand: Address
) -> list[tuple[Address, bytes]]:
    """A fresh PerkNFT numbers them 1 and 2: nobody else is a registrar before this is done."""
    return [
        (contracts.perk_nft, offers.create_collection(terms))
        for id_, terms in enumerate(collection_terms(brand), start=1)
        if await found.collection(id_) is None
    ]


async def _missing_others(
    found: OfferReader, contracts: OfferContracts, brand: Address, business: Address
) -> list[tuple[Address, bytes]]:
    calls = []
    if await found.item(ITEM_ID) is None:
        item = offers.set_item(ITEM_ID, item_terms(brand), metadata=bytes(32))
        calls.append((contracts.points_sale, item))
    if not await found.is_business(business):
        approval = offers.set_business(business, approved=True)
        calls.append((contracts.business_escrow, approval))
    return calls


async def _collection(found: OfferReader, perk: Perk) -> dict[str, Any]:
    collection = await found.collection(perk.collection_id or 0)
    if collection is None:
        raise Broken(f"There is no demo collection {perk.collection_id}")
    return {
        "collectionId": collection.id,
        "perkId": perk.id,
        "name": perk.name,
        "price": _number(collection.terms.price),
        "maxPerUser": collection.terms.max_per_user,
        "charges": collection.terms.charges,
    }


async def _item(found: OfferReader, perk: Perk) -> dict[str, Any]:
    item = await found.item(perk.item_id or 0)
    if item is None:
        raise Broken(f"There is no demo item {perk.item_id}")
    return {
        "itemId": item.id,
        "perkId": perk.id,
        "name": perk.name,
        "price": _number(item.terms.price),
        "stock": item.terms.stock,
        "maxPerOrder": item.terms.max_per_order,
    }


def _number(units: LtzUnits) -> int | float:
    """For JSON. Only a price that a person has set to decimals is no integer."""
    return units // LTZ if units % LTZ == 0 else float(ltz_of(units))


def _terms(brand: Address, *, ltz: int, max_per_user: int, charges: int) -> CollectionSettings:
    return CollectionSettings(
        brand=brand,
        payout=brand,
        price=LtzUnits(ltz * LTZ),
        max_supply=0,
        max_per_user=max_per_user,
        charges=charges,
        active=True,
        requires_sig=False,
        uri="",
    )
