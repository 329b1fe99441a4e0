"""What brands offer on chain: collections, items and businesses, as they stand and as calls.

Only the REGISTRAR may send these calls. Prices are in LTZ's smallest unit; a limit of 0 is none.
Reads raise NodeUnavailable.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from ltzd.chain.contracts import reverts, web3_contracts
from ltzd.chain.node.rpc import Rpc, RpcError
from ltzd.errors import NodeUnavailable
from ltzd.values import Address, LtzUnits, address_of, bytes_of, hex_of

_CALLS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """`charges`, `requires_sig` and `uri` never change."""

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
    id: int
    terms: CollectionSettings
    minted: int


@dataclass(frozen=True, slots=True)
class ItemSettings:
    """`stock` counts what was sold, too."""

    brand: Address
    payout: Address
    price: LtzUnits
    stock: int
    max_per_order: int
    active: bool
    burns: bool


@dataclass(frozen=True, slots=True)
class ItemOffer:
    id: int
    terms: ItemSettings
    sold: int


@dataclass(frozen=True, slots=True)
class OfferContracts:
    """`first_block` is where the oldest of them begins, or any earlier one."""

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
    return web3_contracts.encode_call("PerkNFT", "createCollection", params, terms.uri)


def change_collection(id_: int, old: CollectionSettings, new: CollectionSettings) -> bytes | None:
    """One call for all that differs of what may; None where nothing does."""
    calls = []
    limits = (new.price, new.max_supply, new.max_per_user, new.active)
    if limits != (old.price, old.max_supply, old.max_per_user, old.active):
        calls.append(web3_contracts.encode_call("PerkNFT", "updateCollection", id_, *limits))
    if new.payout != old.payout:
        calls.append(web3_contracts.encode_call("PerkNFT", "setPayout", id_, new.payout))
    if new.brand != old.brand:
        calls.append(web3_contracts.encode_call("PerkNFT", "setBrand", id_, new.brand))
    if len(calls) > 1:
        return web3_contracts.encode_call("PerkNFT", "multicall", calls)
    return calls[0] if calls else None


def set_item(id_: int, terms: ItemSettings, metadata: bytes) -> bytes:
    item = (
        terms.payout,
        terms.price,
        terms.stock,
        0,  # what was sold the contract knows
        terms.max_per_order,
        terms.active,
        terms.burns,
    )
    return web3_contracts.encode_call("PointsSale", "setItem", id_, terms.brand, item, metadata)


def set_business(business: Address, *, approved: bool) -> bytes:
    return web3_contracts.encode_call("BusinessEscrow", "setBusiness", business, approved)


def created_collection_id(logs: Sequence[dict[str, Any]], perk_nft: Address) -> int:
    """The id in the logs of a `createCollection`."""
    try:
        for log in logs:
            if address_of(log["address"]) == perk_nft:
                found = web3_contracts.decode_log("PerkNFT", log)
                if found is not None and found.name == "CollectionCreated":
                    return int(found.arguments["collectionId"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise NodeUnavailable("The receipt's logs are malformed") from error
    raise NodeUnavailable("The receipt holds no CollectionCreated")


class OfferReader:
    """Reads what is on offer from one node."""

    def __init__(self, rpc: Rpc, contracts: OfferContracts) -> None:
        self._rpc = rpc
        self._at = contracts

    async def collection(self, id_: int) -> CollectionOffer | None:
        (found,) = await self._collections([id_], "latest")
        return found

    async def collections(self) -> list[CollectionOffer]:
        """All, oldest first, at one block."""
        block = await self._head()
        count = web3_contracts.encode_call("PerkNFT", "collectionCount")
        (answer,) = await self._views(self._at.perk_nft, [count], block)
        (newest,) = _must(answer, "PerkNFT", "collectionCount")
        return [one for one in await self._collections(range(1, newest + 1), block) if one]

    async def item(self, id_: int) -> ItemOffer | None:
        (found,) = await self._items([id_], "latest")
        return found

    async def items(self) -> list[ItemOffer]:
        """All that were ever set, by id, at one block."""
        block = await self._head()
        ids = {log["itemId"] async for log in self._events("PointsSale", "ItemSet", block)}
        return [one for one in await self._items(sorted(ids), block) if one]

    async def metadata_of(self, item_id: int) -> bytes:
        """What the item's registrar last gave; only the events hold it."""
        found = bytes(32)
        async for log in self._events("PointsSale", "ItemSet", await self._head(), item_id):
            found = log["metadata"]
        return found

    async def is_business(self, business: Address) -> bool:
        (found,) = await self._approvals([business], "latest")
        return found

    async def businesses(self) -> dict[Address, bool]:
        """All that were ever approved, and whether they are now."""
        block = await self._head()
        seen = [log async for log in self._events("BusinessEscrow", "BusinessSet", block)]
        known = list(dict.fromkeys(log["business"] for log in seen))
        return dict(zip(known, await self._approvals(known, block), strict=True))

    async def _collections(self, ids: Sequence[int], block: str) -> list[CollectionOffer | None]:
        calls = [web3_contracts.encode_call("PerkNFT", "collection", id_) for id_ in ids]
        answers = await self._views(self._at.perk_nft, calls, block)
        return [_collection(id_, answer) for id_, answer in zip(ids, answers, strict=True)]

    async def _items(self, ids: Sequence[int], block: str) -> list[ItemOffer | None]:
        calls = [web3_contracts.encode_call("PointsSale", "item", id_) for id_ in ids]
        answers = await self._views(self._at.points_sale, calls, block)
        return [_item(id_, answer) for id_, answer in zip(ids, answers, strict=True)]

    async def _approvals(self, businesses: Sequence[Address], block: str) -> list[bool]:
        calls = [
            web3_contracts.encode_call("BusinessEscrow", "isBusiness", one) for one in businesses
        ]
        answers = await self._views(self._at.business_escrow, calls, block)
        return [_must(answer, "BusinessEscrow", "isBusiness")[0] for answer in answers]

    async def _head(self) -> str:
        head = await self._asked("eth_blockNumber")
        try:
            return hex(int(head, 16))
        except (TypeError, ValueError) as error:
            raise NodeUnavailable("The node's block number is malformed") from error

    async def _views(self, to: Address, calls: Sequence[bytes], block: str) -> list[Any]:
        """Each call's answer or RpcError."""
        asked = [("eth_call", ({"to": hex_of(to), "data": hex_of(data)}, block)) for data in calls]
        answers: list[Any] = []
        for start in range(0, len(asked), _CALLS_AT_ONCE):
            answers += await self._rpc.batch(asked[start : start + _CALLS_AT_ONCE])
        return answers

    async def _events(
        self, contract: str, event: str, head: str, first_topic: int | None = None
    ) -> AsyncIterator[Any]:
        """Arguments of a contract's events in their order."""
        to = self._at.points_sale if contract == "PointsSale" else self._at.business_escrow
        topics = [hex_of(web3_contracts.event_topic(contract, event))]
        if first_topic is not None:
            topics.append(f"0x{first_topic:064x}")
        where = {"address": hex_of(to), "topics": topics}
        for log in await self._logs(where, self._at.first_block, int(head, 16)):
            try:
                found = web3_contracts.decode_log(contract, log)
            except ValueError as error:
                raise NodeUnavailable("The node's log is malformed") from error
            if found is not None:
                yield found.arguments

    async def _logs(self, where: dict[str, Any], first: int, last: int) -> list[Any]:
        """By halves where the node finds a range too large."""
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

    async def _asked(self, method: str) -> Any:
        try:
            return await self._rpc.call(method)
        except RpcError as error:
            raise NodeUnavailable(f"{method}: {error.message}") from error


def _collection(id_: int, answer: Any) -> CollectionOffer | None:
    found = _found(answer, "PerkNFT", "collection", "UnknownCollection")
    if found is None:
        return None
    ((params, minted, uri),) = found
    return CollectionOffer(id_, CollectionSettings(*(*params, uri)), minted)


def _item(id_: int, answer: Any) -> ItemOffer | None:
    found = _found(answer, "PointsSale", "item", "UnknownItem")
    if found is None:
        return None
    (payout, price, stock, sold, max_per_order, active, burns), brand = found
    return ItemOffer(
        id_, ItemSettings(brand, payout, price, stock, max_per_order, active, burns), sold
    )


def _found(answer: Any, contract: str, function: str, unknown: str) -> tuple[Any, ...] | None:
    """None where the contract says that there is no such thing."""
    if isinstance(answer, RpcError) and reverts.error_name(answer.data or b"") == unknown:
        return None
    return _must(answer, contract, function)


def _must(answer: Any, contract: str, function: str) -> tuple[Any, ...]:
    if isinstance(answer, RpcError):
        raise NodeUnavailable(f"{contract}.{function}: {answer.message}") from answer
    try:
        return web3_contracts.decode_result(contract, function, bytes_of(answer))
    except (AttributeError, TypeError, ValueError) as error:
        raise NodeUnavailable(
            f"{contract}.{function} answers nonsense: is that contract at this address?"
        ) from error
