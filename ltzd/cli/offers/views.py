"""Shows collections, items and businesses as a table or as JSON, with amounts in LTZ."""

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
from ltzd.cli.chain_targets import ChainTarget
from ltzd.cli.command_node import agreeing_nodes
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
    collections: list[CollectionOffer] = _read(
        target, "the collections", lambda offers: offers.collections()
    )
    views = [collection_view(offer.id, offer.terms, offer.minted) for offer in collections]
    _print(views, as_json=as_json, offer="collection")


def list_items(target: ChainTarget, *, as_json: bool) -> None:
    items: list[ItemOffer] = _read(target, "the items", lambda offers: offers.items())
    views = [item_view(offer.id, offer.terms, offer.sold) for offer in items]
    _print(views, as_json=as_json, offer="item")


def list_businesses(target: ChainTarget, *, as_json: bool) -> None:
    businesses = _read(target, "the businesses", lambda offers: offers.businesses())
    views = [business_view(address, approved=yes) for address, yes in businesses.items()]
    _print(views, as_json=as_json, offer="business")


def _read(target: ChainTarget, subject: str, query: Callable[[OfferReader], Awaitable[T]]) -> T:
    """The answer of all nodes. Raises NodeUnavailable if they do not agree."""

    async def read() -> T:
        async with agreeing_nodes(target.rpc_urls, target.chain_id, signs=False) as nodes:
            return await nodes.agreed(
                subject,
                lambda rpc: query(OfferReader(rpc, target.contracts)),
                "Nothing is listed, since it might be false.",
            )

    return asyncio.run(read())


def _print(views: Sequence[Mapping[str, Any]], *, as_json: bool, offer: str) -> None:
    if as_json:
        print_json(views)
    elif views:
        print_page(_table(views))
    else:
        print_message(f"There is no {offer} yet: `ltzd {offer} create` makes one.")


def _table(views: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        *(Column(name, overflow="fold") for name in views[0]), box=None, padding=(0, 2, 0, 0)
    )
    for view in views:
        table.add_row(*(plain_text(_text(value)) for value in view.values()))
    return table


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
