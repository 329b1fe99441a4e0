"""Calls, answers and logs of PointsSale (contracts/src/IPointsSale.sol).

The REGISTRAR's calls are in `offers`. Prices are in LTZ's smallest unit. A buyer's reference works
once.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ltzd.chain.contracts import abi_words
from ltzd.chain.contracts.abi_words import LogReader, WordReader
from ltzd.rules.indexer.contract_facts import ItemSet, Purchased, SaleFact
from ltzd.values import Address

BUY_FOR = abi_words.selector("buyFor(address,uint256,uint256,uint256,bytes32)")
ITEM = abi_words.selector("item(uint256)")

PURCHASED_TOPIC = abi_words.topic("Purchased(uint256,address,bytes32,uint256,uint256)")
ITEM_SET_TOPIC = abi_words.topic(
    "ItemSet(uint256,address,(address,uint96,uint32,uint32,uint16,bool,bool),bytes32)"
)

INDEXED_TOPICS: Final = (PURCHASED_TOPIC, ITEM_SET_TOPIC)


class ItemOnSale(msgspec.Struct, frozen=True):
    """`stock` counts sold pieces too."""

    payout: Address
    price: int
    stock: int
    sold: int
    max_per_order: int
    is_active: bool
    burns: bool
    brand: Address


def item_call(item_id: int) -> bytes:
    return ITEM + abi_words.encode_uint(item_id)


def decode_item(answer: bytes) -> ItemOnSale:
    """Raises ValueError."""
    reader = WordReader(answer)
    item = ItemOnSale(
        payout=reader.address(),
        price=reader.uint(96),
        stock=reader.uint(32),
        sold=reader.uint(32),
        max_per_order=reader.uint(16),
        is_active=reader.boolean(),
        burns=reader.boolean(),
        brand=reader.address(),
    )
    reader.end()
    return item


def buy_for_call(
    buyer: Address, item_id: int, quantity: int, max_total: int, reference: bytes
) -> bytes:
    return b"".join(
        (
            BUY_FOR,
            abi_words.encode_address(buyer),
            abi_words.encode_uint(item_id),
            abi_words.encode_uint(quantity),
            abi_words.encode_uint(max_total),
            abi_words.encode_bytes32(reference),
        )
    )


def decode_log(log: Mapping[str, Any]) -> SaleFact | None:
    """The fact in a log of PointsSale, or None for an event that is not indexed (roles).

    Raises ValueError when such a log is malformed.
    """
    reader = LogReader(log)
    if reader.topic == PURCHASED_TOPIC:
        return _purchased(reader)
    if reader.topic == ITEM_SET_TOPIC:
        return _item_set(reader)
    return None


def _purchased(reader: LogReader) -> Purchased:
    indexed, data = reader.indexed, reader.data
    fact = Purchased(
        reader.position,
        item_id=indexed.uint(),
        buyer=indexed.address(),
        reference=indexed.word(),
        quantity=data.uint(),
        paid=data.uint(),
    )
    reader.end()
    return fact


def _item_set(reader: LogReader) -> ItemSet:
    indexed, data = reader.indexed, reader.data
    fact = ItemSet(
        reader.position,
        item_id=indexed.uint(),
        brand=indexed.address(),
        payout=data.address(),
        price=data.uint(96),
        stock=data.uint(32),
        sold=data.uint(32),
        max_per_order=data.uint(16),
        is_active=data.boolean(),
        burns=data.boolean(),
        metadata=data.word(),
    )
    reader.end()
    return fact
