"""Collections, items and businesses for people, or as JSON for programs; amounts in LTZ."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from rich.table import Column, Table

from ltzd.chain.contracts.offers import (
    CollectionOffer,
    CollectionSettings,
    ItemOffer,
    ItemSettings,
    OfferReader,
)
from ltzd.chain.node.rpc import Rpc
from ltzd.cli.chain_targets import ChainTarget
from ltzd.cli.output import plain_text, print_json, print_message, print_page
from ltzd.rules.amounts import ltz_of
from ltzd.values import Address, checksummed

T = TypeVar("T")


def collection_view(id_: int, terms: CollectionSettings, minted: int) -> dict[str, Any]:
    return {
        "collectionId": id_,
        "brand": checksummed(terms.brand),
        "payout": checksummed(terms.payout),
        "price": ltz_of(terms.price),
        "maxSupply": terms.max_supply,
        "maxPerUser": terms.max_per_user,
        "charges": terms.charges,
        "active": terms.active,
        "requiresSig": terms.requires_sig,
        "uri": terms.uri,
        "minted": minted,
    }


def item_view(id_: int, terms: ItemSettings, sold: int) -> dict[str, Any]:
    return {
        "itemId": id_,
        "brand": checksummed(terms.brand),
        "payout": checksummed(terms.payout),
        "price": ltz_of(terms.price),
        "stock": terms.stock,
        "sold": sold,
        "maxPerOrder": terms.max_per_order,
        "active": terms.active,
        "burns": terms.burns,
    }


def business_view(business: Address, *, approved: bool) -> dict[str, Any]:
    return {"business": checksummed(business), "approved": approved}


def list_collections(target: ChainTarget, *, as_json: bool) -> None:
    found: list[CollectionOffer] = _read(target, lambda offers: offers.collections())
    views = [collection_view(one.id, one.terms, one.minted) for one in found]
    _show(views, as_json=as_json, without="collection")


def list_items(target: ChainTarget, *, as_json: bool) -> None:
    found: list[ItemOffer] = _read(target, lambda offers: offers.items())
    _show(
        [item_view(one.id, one.terms, one.sold) for one in found], as_json=as_json, without="item"
    )


def list_businesses(target: ChainTarget, *, as_json: bool) -> None:
    found = _read(target, lambda offers: offers.businesses())
    views = [business_view(one, approved=approved) for one, approved in found.items()]
    _show(views, as_json=as_json, without="business")


def _read(target: ChainTarget, ask: Callable[[OfferReader], Awaitable[T]]) -> T:
    async def read() -> T:
        async with Rpc(target.rpc_url) as rpc:
            return await ask(OfferReader(rpc, target.contracts))

    return asyncio.run(read())


def _show(views: Sequence[Mapping[str, Any]], *, as_json: bool, without: str) -> None:
    if as_json:
        print_json(views)
    elif views:
        print_page(_table(views))
    else:
        print_message(f"There is no {without} yet: `ltzd {without} create` makes one.")


def _table(views: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        *(Column(name, overflow="fold") for name in views[0]), box=None, padding=(0, 2, 0, 0)
    )
    for view in views:
        table.add_row(*(plain_text(_shown(value)) for value in view.values()))
    return table


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
