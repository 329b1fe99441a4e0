"""Runs `create` and `set` of `ltzd collection`, `ltzd item` and `ltzd business`.

Every function takes the command's values by option name, with None for an option that was not
given, and validates all of them before it looks for the chain. Each raises FileRejected for wrong
options, NotFound, Refused, Misconfigured and Unavailable.
"""

import asyncio
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from ltzd.chain.contracts import offers
from ltzd.chain.contracts.offers import CollectionSettings, ItemOffer, ItemSettings
from ltzd.cli.chain_targets import ChainTarget
from ltzd.cli.offers.options import (
    BusinessApproval,
    ChangedCollection,
    ChangedItem,
    NewCollection,
    NewItem,
    parse_options,
)
from ltzd.cli.offers.transaction_sender import (
    SigningOptions,
    TransactionSender,
    open_sender,
    print_result,
    print_unchanged,
)
from ltzd.cli.offers.views import business_view, collection_view, item_view
from ltzd.errors import NotFound, Refused
from ltzd.values import LtzUnits, checksummed

TargetResolver = Callable[[], ChainTarget]
"""Called after the options are validated, so that their faults are reported first."""
Values = Mapping[str, object]


def create_collection(
    values: Values, signing: SigningOptions, resolve_target: TargetResolver
) -> None:
    options = parse_options(NewCollection, values, signing.faults())
    settings = CollectionSettings(
        brand=options.brand,
        payout=options.payout or options.brand,
        price=LtzUnits(options.price),
        max_supply=options.max_supply,
        max_per_user=options.max_per_user,
        charges=options.charges,
        uri=options.uri,
        active=not options.inactive,
        requires_sig=options.requires_sig,
    )
    asyncio.run(_create_collection(settings, signing, resolve_target()))


async def _create_collection(
    settings: CollectionSettings, signing: SigningOptions, target: ChainTarget
) -> None:
    async with open_sender(target, signing) as sender:
        perk_nft = sender.contracts.perk_nft
        mined = await sender.submit(perk_nft, offers.create_collection(settings))
    if mined is not None:
        id_ = offers.created_collection_id(mined.logs, perk_nft)
        print_result(collection_view(id_, settings, minted=0), mined)


def set_collection(values: Values, signing: SigningOptions, resolve_target: TargetResolver) -> None:
    options = parse_options(ChangedCollection, values, signing.faults(), needs_change=True)
    asyncio.run(_set_collection(options, signing, resolve_target()))


async def _set_collection(
    options: ChangedCollection, signing: SigningOptions, target: ChainTarget
) -> None:
    async with open_sender(target, signing) as sender:
        old = await sender.agreed(
            f"collection {options.collection}", lambda offers: offers.collection(options.collection)
        )
        if old is None:
            raise NotFound(
                f"There is no collection {options.collection}; `ltzd collection list` shows all."
            )
        settings = replace(old.terms, **options.changes())
        view = collection_view(old.id, settings, old.minted)
        call = offers.change_collection(old.id, old.terms, settings)
        if call is None:
            print_unchanged(view)
        elif mined := await sender.submit(sender.contracts.perk_nft, call):
            print_result(view, mined)


def create_item(values: Values, signing: SigningOptions, resolve_target: TargetResolver) -> None:
    options = parse_options(NewItem, values, signing.faults())
    settings = ItemSettings(
        brand=options.brand,
        payout=options.payout or options.brand,
        price=LtzUnits(options.price),
        stock=options.stock,
        max_per_order=options.max_per_order,
        active=not options.inactive,
        burns=options.burns,
    )
    asyncio.run(_create_item(options, settings, signing, resolve_target()))


async def _create_item(
    options: NewItem, settings: ItemSettings, signing: SigningOptions, target: ChainTarget
) -> None:
    async with open_sender(target, signing) as sender:
        # The contract has one function for both and would overwrite the existing item.
        if await _item_of(sender, options.item) is not None:
            raise Refused(f"Item {options.item} exists already; `ltzd item set` changes it.")
        call = offers.set_item(options.item, settings, options.metadata)
        if mined := await sender.submit(sender.contracts.points_sale, call):
            print_result(item_view(options.item, settings, sold=0), mined)


async def _item_of(sender: TransactionSender, id_: int) -> ItemOffer | None:
    return await sender.agreed(f"item {id_}", lambda offers: offers.item(id_))


def set_item(values: Values, signing: SigningOptions, resolve_target: TargetResolver) -> None:
    options = parse_options(ChangedItem, values, signing.faults(), needs_change=True)
    asyncio.run(_set_item(options, signing, resolve_target()))


async def _set_item(options: ChangedItem, signing: SigningOptions, target: ChainTarget) -> None:
    async with open_sender(target, signing) as sender:
        old = await _item_of(sender, options.item)
        if old is None:
            raise NotFound(f"There is no item {options.item}; `ltzd item list` shows all.")
        changes = options.changes()
        old_metadata = await sender.agreed(
            f"the metadata of item {old.id}", lambda offers: offers.metadata_of(options.item)
        )
        metadata = changes.pop("metadata", old_metadata)
        settings = replace(old.terms, **changes)
        view = item_view(old.id, settings, old.sold)
        if (settings, metadata) == (old.terms, old_metadata):
            print_unchanged(view)
            return
        call = offers.set_item(old.id, settings, metadata)
        if mined := await sender.submit(sender.contracts.points_sale, call):
            print_result(view, mined)


def set_business(values: Values, signing: SigningOptions, resolve_target: TargetResolver) -> None:
    options = parse_options(BusinessApproval, values, signing.faults())
    asyncio.run(_set_business(options, signing, resolve_target()))


async def _set_business(
    options: BusinessApproval, signing: SigningOptions, target: ChainTarget
) -> None:
    business, approved = options.business, options.approved
    async with open_sender(target, signing) as sender:
        view = business_view(business, approved=approved)
        is_business = await sender.agreed(
            f"the approval of {checksummed(business)}", lambda offers: offers.is_business(business)
        )
        if is_business == approved:
            print_unchanged(view)
            return
        call = offers.set_business(business, approved=approved)
        if mined := await sender.submit(sender.contracts.business_escrow, call):
            print_result(view, mined)
