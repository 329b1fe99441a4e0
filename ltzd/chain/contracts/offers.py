"""The brands' offers on chain: reads and changes collections, items and businesses.

Only the REGISTRAR may send the calls that change them. Prices are in LTZ's smallest unit; a limit
of 0 means no limit. Reads raise NodeUnavailable.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ltzd.chain.contracts import contract_abi, reverts
from ltzd.chain.node.rpc import RpcClient, RpcError
from ltzd.errors import NodeUnavailable
from ltzd.values import Address, LtzUnits, address_of, bytes_of, hex_of

_CALLS_PER_BATCH = 100


class CollectionSettings(msgspec.Struct, frozen=True):
    """`charges`, `requires_sig` and `uri` cannot be changed later."""

    brand: Address
    payout: Address
    price: LtzUnits
    max_supply: int
    max_per_user: int
    charges: int
    active: bool
    requires_sig: bool
    uri: str


@dataclass(frozen=True, slots=True)
class CollectionOffer:
    """`minted` grows with each claim, and is no part of what is compared."""

    id: int
    terms: CollectionSettings
    minted: int = field(compare=False)


class ItemSettings(msgspec.Struct, frozen=True):
    """`stock` counts sold pieces too."""

    brand: Address
    payout: Address
    price: LtzUnits
    stock: int
    max_per_order: int
    active: bool
    burns: bool


@dataclass(frozen=True, slots=True)
class ItemOffer:
    """`sold` grows with each purchase, and is no part of what is compared."""

    id: int
    terms: ItemSettings
    sold: int = field(compare=False)


class OfferContracts(msgspec.Struct, frozen=True):
    """`first_block` is a block before which none of the contracts has a log."""

    perk_nft: Address
    points_sale: Address
    business_escrow: Address
    first_block: int = 0


def create_collection(terms: CollectionSettings) -> bytes:
    params = (
        terms.brand,
        terms.payout,
        terms.price,
        terms.max_supply,
        terms.max_per_user,
        terms.charges,
        terms.active,
        terms.requires_sig,
    )
    return contract_abi.encode_call("PerkNFT", "createCollection", params, terms.uri)


def change_collection(id_: int, old: CollectionSettings, new: CollectionSettings) -> bytes | None:
    """One call for all differences that can be changed, or None if there are none."""
    calls = []
    limits = (new.price, new.max_supply, new.max_per_user, new.active)
    if limits != (old.price, old.max_supply, old.max_per_user, old.active):
        calls.append(contract_abi.encode_call("PerkNFT", "updateCollection", id_, *limits))
    if new.payout != old.payout:
        calls.append(contract_abi.encode_call("PerkNFT", "setPayout", id_, new.payout))
    if new.brand != old.brand:
        calls.append(contract_abi.encode_call("PerkNFT", "setBrand", id_, new.brand))
    if len(calls) > 1:
        return contract_abi.encode_call("PerkNFT", "multicall", calls)
    return calls[0] if calls else None


def set_item(id_: int, terms: ItemSettings, metadata: bytes) -> bytes:
    item = (
        terms.payout,
        terms.price,
        terms.stock,
        0,  # sold: the contract keeps its own count
        terms.max_per_order,
        terms.active,
        terms.burns,
    )
    return contract_abi.encode_call("PointsSale", "setItem", id_, terms.brand, item, metadata)


def set_business(business: Address, *, approved: bool) -> bytes:
    return contract_abi.encode_call("BusinessEscrow", "setBusiness", business, approved)


def created_collection_id(logs: Sequence[dict[str, Any]], perk_nft: Address) -> int:
    """The id in the logs of a `createCollection`."""
    try:
        for log in logs:
            if address_of(log["address"]) == perk_nft:
                event = contract_abi.decode_log("PerkNFT", log)
                if event is not None and event.name == "CollectionCreated":
                    return int(event.arguments["collectionId"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise NodeUnavailable("The receipt's logs are malformed") from error
    raise NodeUnavailable("The receipt holds no CollectionCreated")


class OfferReader:
    """Reads collections, items and businesses from one node."""

    def __init__(self, rpc: RpcClient, contracts: OfferContracts) -> None:
        self._rpc = rpc
        self._at = contracts

    async def collection(self, id_: int) -> CollectionOffer | None:
        (collection,) = await self._collections([id_], "latest")
        return collection

    async def collections(self) -> list[CollectionOffer]:
        """All collections as of one block, oldest first."""
        block = await self._head()
        count = contract_abi.encode_call("PerkNFT", "collectionCount")
        (answer,) = await self._views(self._at.perk_nft, [count], block)
        (newest,) = _result(answer, "PerkNFT", "collectionCount")
        collections = await self._collections(range(1, newest + 1), block)
        return [collection for collection in collections if collection]

    async def item(self, id_: int) -> ItemOffer | None:
        (item,) = await self._items([id_], "latest")
        return item

    async def items(self) -> list[ItemOffer]:
        """Every item of the contract at the newest block, by id; all are read at that block."""
        block = await self._head()
        ids = {log["itemId"] async for log in self._events("PointsSale", "ItemSet", block)}
        return [item for item in await self._items(sorted(ids), block) if item]

    async def metadata_of(self, item_id: int) -> bytes:
        """The metadata that was last set. Only the events hold it."""
        metadata = bytes(32)
        async for log in self._events("PointsSale", "ItemSet", await self._head(), item_id):
            metadata = log["metadata"]
        return metadata

    async def is_business(self, business: Address) -> bool:
        (is_approved,) = await self._approvals([business], "latest")
        return is_approved

    async def businesses(self) -> dict[Address, bool]:
        """All businesses that were ever approved, and whether they still are."""
        block = await self._head()
        seen = [log async for log in self._events("BusinessEscrow", "BusinessSet", block)]
        known = list(dict.fromkeys(log["business"] for log in seen))
        return dict(zip(known, await self._approvals(known, block), strict=True))

    async def _collections(self, ids: Sequence[int], block: str) -> list[CollectionOffer | None]:
        calls = [contract_abi.encode_call("PerkNFT", "collection", id_) for id_ in ids]
        answers = await self._views(self._at.perk_nft, calls, block)
        return [_collection(id_, answer) for id_, answer in zip(ids, answers, strict=True)]

    async def _items(self, ids: Sequence[int], block: str) -> list[ItemOffer | None]:
        calls = [contract_abi.encode_call("PointsSale", "item", id_) for id_ in ids]
        answers = await self._views(self._at.points_sale, calls, block)
        return [_item(id_, answer) for id_, answer in zip(ids, answers, strict=True)]

    async def _approvals(self, businesses: Sequence[Address], block: str) -> list[bool]:
        calls = [
            contract_abi.encode_call("BusinessEscrow", "isBusiness", business)
            for business in businesses
        ]
        answers = await self._views(self._at.business_escrow, calls, block)
        return [_result(answer, "BusinessEscrow", "isBusiness")[0] for answer in answers]

    async def _head(self) -> str:
        try:
            head = await self._rpc.call("eth_blockNumber")
            return hex(int(head, 16))
        except RpcError as error:
            raise NodeUnavailable(f"eth_blockNumber: {error.message}") from error
        except (TypeError, ValueError) as error:
            raise NodeUnavailable("The node's block number is malformed") from error

    async def _views(self, to: Address, calls: Sequence[bytes], block: str) -> list[Any]:
        """Each call's result or RpcError, in order."""
        requests = [
            ("eth_call", ({"to": hex_of(to), "data": hex_of(data)}, block)) for data in calls
        ]
        answers: list[Any] = []
        for start in range(0, len(requests), _CALLS_PER_BATCH):
            answers += await self._rpc.batch(requests[start : start + _CALLS_PER_BATCH])
        return answers

    async def _events(
        self, contract: str, event: str, head: str, first_topic: int | None = None
    ) -> AsyncIterator[Any]:
        """The arguments of a contract's events, in the order of the chain."""
        to = self._at.points_sale if contract == "PointsSale" else self._at.business_escrow
        topics = [hex_of(contract_abi.event_topic(contract, event))]
        if first_topic is not None:
            topics.append(f"0x{first_topic:064x}")
        where = {"address": hex_of(to), "topics": topics}
        for log in await self._logs(where, self._at.first_block, int(head, 16)):
            try:
                decoded = contract_abi.decode_log(contract, log)
            except ValueError as error:
                raise NodeUnavailable("The node's log is malformed") from error
            if decoded is not None:
                yield decoded.arguments

    async def _logs(self, where: dict[str, Any], first: int, last: int) -> list[Any]:
        """Halve the range while the node refuses it as too large."""
        span = {"fromBlock": hex(first), "toBlock": hex(last)}
        try:
            logs = await self._rpc.call("eth_getLogs", where | span)
            if not isinstance(logs, list):
                raise NodeUnavailable("The node's list of logs is malformed")
            return logs
        except RpcError as error:
            if first >= last:
                raise NodeUnavailable(f"eth_getLogs: {error.message}") from error
        middle = (first + last) // 2
        return [
            *await self._logs(where, first, middle),
            *await self._logs(where, middle + 1, last),
        ]


def _collection(id_: int, answer: Any) -> CollectionOffer | None:
    result = _result_or_none(answer, "PerkNFT", "collection", "UnknownCollection")
    if result is None:
        return None
    ((params, minted, uri),) = result
    return CollectionOffer(id_, CollectionSettings(*(*params, uri)), minted)


def _item(id_: int, answer: Any) -> ItemOffer | None:
    result = _result_or_none(answer, "PointsSale", "item", "UnknownItem")
    if result is None:
        return None
    (payout, price, stock, sold, max_per_order, active, burns), brand = result
    return ItemOffer(
        id_, ItemSettings(brand, payout, price, stock, max_per_order, active, burns), sold
    )


def _result_or_none(
    answer: Any, contract: str, function: str, unknown: str
) -> tuple[Any, ...] | None:
    """None if the call reverts with the error `unknown`."""
    if isinstance(answer, RpcError) and reverts.error_name(answer.data or b"") == unknown:
        return None
    return _result(answer, contract, function)


def _result(answer: Any, contract: str, function: str) -> tuple[Any, ...]:
    if isinstance(answer, RpcError):
        raise NodeUnavailable(f"{contract}.{function}: {answer.message}") from answer
    try:
        return contract_abi.decode_result(contract, function, bytes_of(answer))
    except (AttributeError, TypeError, ValueError) as error:
        raise NodeUnavailable(
            f"{contract}.{function} returned data that cannot be decoded: is that contract at this "
            "address?"
        ) from error
