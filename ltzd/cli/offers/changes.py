"""`ltzd collection | item | business create | set`: what is asked for, made of what is there."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from ltzd.chain.contracts import offers
from ltzd.chain.contracts.offers import CollectionSettings, ItemSettings
from ltzd.cli.chain_targets import ChainTarget
from ltzd.cli.offers.options import (
    Business,
    ChangedCollection,
    ChangedItem,
    NewCollection,
    NewItem,
    parse_options,
)
from ltzd.cli.offers.registrar import SigningOptions, desk, print_unchanged, show
from ltzd.cli.offers.views import business_view, collection_view, item_view
from ltzd.errors import NotFound, Refused
from ltzd.values import LtzUnits

PlaceOf = Callable[[], ChainTarget]
"""Asked only once the options are understood, so that all of their faults come first."""
Given = Mapping[str, object]
"""Options by field; None is not given."""


def create_collection(
    given: Given, switches: Given, means: SigningOptions, target: PlaceOf
) -> None:
    """`switches` are `active` and `requires_sig`."""
    said = parse_options(NewCollection, given, means.faults())
    terms = CollectionSettings(
        brand=said.brand,
        payout=said.payout or said.brand,
        price=LtzUnits(said.price),
        max_supply=said.max_supply,
        max_per_user=said.max_per_user,
        charges=said.charges,
        uri=said.uri,
        active=bool(switches["active"]),
        requires_sig=bool(switches["requires_sig"]),
    )
    asyncio.run(_create_collection(terms, means, target()))


async def _create_collection(
    terms: CollectionSettings, means: SigningOptions, target: ChainTarget
) -> None:
    async with desk(target, means) as at:
        perk_nft = at.contracts.perk_nft
        mined = await at.sign_or_print(perk_nft, offers.create_collection(terms))
    if mined is not None:
        id_ = offers.created_collection_id(mined.logs, perk_nft)
        show(collection_view(id_, terms, minted=0), mined)


def set_collection(given: Given, means: SigningOptions, target: PlaceOf) -> None:
    said = parse_options(ChangedCollection, given, means.faults(), changes=True)
    asyncio.run(_set_collection(said, means, target()))


async def _set_collection(
    said: ChangedCollection, means: SigningOptions, target: ChainTarget
) -> None:
    async with desk(target, means) as at:
        old = await at.offers.collection(said.collection)
        if old is None:
            raise NotFound(f"There is no collection {said.collection}; `ltzd collection list`.")
        new = replace(old.terms, **said.given())
        view = collection_view(old.id, new, old.minted)
        call = offers.change_collection(old.id, old.terms, new)
        if call is None:
            print_unchanged(means, view)
        elif mined := await at.sign_or_print(at.contracts.perk_nft, call):
            show(view, mined)


def create_item(given: Given, switches: Given, means: SigningOptions, target: PlaceOf) -> None:
    """`switches` are `active` and `burns`."""
    said = parse_options(NewItem, given, means.faults())
    terms = ItemSettings(
        brand=said.brand,
        payout=said.payout or said.brand,
        price=LtzUnits(said.price),
        stock=said.stock,
        max_per_order=said.max_per_order,
        active=bool(switches["active"]),
        burns=bool(switches["burns"]),
    )
    asyncio.run(_create_item(said.item, terms, said.metadata, means, target()))


async def _create_item(
    id_: int, terms: ItemSettings, metadata: bytes, means: SigningOptions, target: ChainTarget
) -> None:
    async with desk(target, means) as at:
        # The contract would take it as a change of what is there.
        if await at.offers.item(id_) is not None:
            raise Refused(f"Item {id_} is there already; `ltzd item set` changes it.")
        call = offers.set_item(id_, terms, metadata)
        if mined := await at.sign_or_print(at.contracts.points_sale, call):
            show(item_view(id_, terms, sold=0), mined)


def set_item(given: Given, means: SigningOptions, target: PlaceOf) -> None:
    said = parse_options(ChangedItem, given, means.faults(), changes=True)
    asyncio.run(_set_item(said, means, target()))


async def _set_item(said: ChangedItem, means: SigningOptions, target: ChainTarget) -> None:
    async with desk(target, means) as at:
        old = await at.offers.item(said.item)
        if old is None:
            raise NotFound(f"There is no item {said.item}; `ltzd item list` shows all.")
        given = said.given()
        before = await at.offers.metadata_of(old.id)
        metadata = before if said.metadata is None else said.metadata
        given.pop("metadata", None)
        new = replace(old.terms, **given)
        view = item_view(old.id, new, old.sold)
        if (new, metadata) == (old.terms, before):
            print_unchanged(means, view)
            return
        call = offers.set_item(old.id, new, metadata)
        if mined := await at.sign_or_print(at.contracts.points_sale, call):
            show(view, mined)


def set_business(address: str, means: SigningOptions, target: PlaceOf, *, approved: bool) -> None:
    said = parse_options(Business, {"business": address}, means.faults())
    asyncio.run(_set_business(said, means, target(), approved=approved))


async def _set_business(
    said: Business, means: SigningOptions, target: ChainTarget, *, approved: bool
) -> None:
    async with desk(target, means) as at:
        view = business_view(said.business, approved=approved)
        if await at.offers.is_business(said.business) == approved:
            print_unchanged(means, view)
            return
        call = offers.set_business(said.business, approved=approved)
        if mined := await at.sign_or_print(at.contracts.business_escrow, call):
            show(view, mined)
