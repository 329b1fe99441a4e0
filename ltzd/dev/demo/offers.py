"""The demo brand's two collections, its item and a business, created on the dev chain once.

They are created by the same calls as `ltzd collection | item | business`. An offer that exists
keeps its terms, which a user may have changed. The chain alone decides which offers are missing,
so the next start completes one that was killed halfway.
"""

from typing import Any

from ltzd.chain.contracts import offers
from ltzd.chain.contracts.offers import (
    CollectionSettings,
    ItemSettings,
    OfferContracts,
    OfferReader,
)
from ltzd.chain.deployment.agreement import AgreeingNodes
from ltzd.chain.deployment.cold_wallet import ColdWallet
from ltzd.chain.node.rpc import Rpc
from ltzd.chain.signing import Signer
from ltzd.errors import Broken
from ltzd.rules.amounts import ltz_of
from ltzd.rules.brands.configuration import Brand, Perk
from ltzd.rules.operator.fees import FeePolicy
from ltzd.values import LTZ, Address, LtzUnits, checksummed

_FEES = FeePolicy(cap=10**18)
"""High enough for a full dev chain, whose fees climb without bound."""
_RECEIPT_SECONDS = 60.0

ITEM_ID = 1


def collection_terms(brand: Address) -> list[CollectionSettings]:
    """Terms of collections 1 and 2; one welcome reward pays for a claim of each."""
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


async def ensure(
    rpc: Rpc, contracts: OfferContracts, registrar: Signer, brand: Brand, business: Address
) -> dict[str, Any]:
    """Create what the chain lacks; returns dev.json's `collections`, `items` and `businesses`."""
    wallet = ColdWallet(AgreeingNodes.of_one(rpc), registrar, _FEES, _RECEIPT_SECONDS)
    # A start that was killed may have left transactions in the pool; they are mined first.
    await wallet.wait_until_idle()
    on_chain = OfferReader(rpc, contracts)
    calls = [
        *await _missing_collections(on_chain, contracts, brand.address),
        *await _missing_item_and_business(on_chain, contracts, brand.address, business),
    ]
    if calls:
        await wallet.send_all(calls, on_signed=lambda _: None)
    return {
        "collections": [
            await _collection(on_chain, perk) for perk in brand.perks if perk.collection_id
        ],
        "items": [await _item(on_chain, perk) for perk in brand.perks if perk.item_id],
        "businesses": [checksummed(business)],
    }


async def _missing_collections(
    on_chain: OfferReader, contracts: OfferContracts, brand: Address
) -> list[tuple[Address, bytes]]:
    """A fresh PerkNFT numbers them 1 and 2, since no other registrar can have created any."""
    return [
        (contracts.perk_nft, offers.create_collection(terms))
        for id_, terms in enumerate(collection_terms(brand), start=1)
        if await on_chain.collection(id_) is None
    ]


async def _missing_item_and_business(
    on_chain: OfferReader, contracts: OfferContracts, brand: Address, business: Address
) -> list[tuple[Address, bytes]]:
    calls = []
    if await on_chain.item(ITEM_ID) is None:
        item = offers.set_item(ITEM_ID, item_terms(brand), metadata=bytes(32))
        calls.append((contracts.points_sale, item))
    if not await on_chain.is_business(business):
        approval = offers.set_business(business, approved=True)
        calls.append((contracts.business_escrow, approval))
    return calls


async def _collection(on_chain: OfferReader, perk: Perk) -> dict[str, Any]:
    collection = await on_chain.collection(perk.collection_id or 0)
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


async def _item(on_chain: OfferReader, perk: Perk) -> dict[str, Any]:
    item = await on_chain.item(perk.item_id or 0)
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
    """The price as a JSON number: an integer unless it has decimals."""
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
