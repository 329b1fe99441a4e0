"""PointsSale's calls, answers and logs (contracts/src/IPointsSale.sol); registrars': `offers`.

Prices are LTZ's smallest unit. A buyer's reference works once.
"""

from collections.abc import Mapping
from typing import Any, Final

from ltzd.chain.contracts import abi, abi_words
from ltzd.chain.contracts.abi_words import LogReader, WordReader
from ltzd.chain.typed_data import Buy
from ltzd.rules.indexer.contract_facts import ItemSet, Purchased, SaleFact
from ltzd.values import Address

BUY_FOR = abi_words.selector("buyFor(address,uint256,uint256,uint256,bytes32)")
IS_ORDER_PLACED = abi_words.selector("isOrderPlaced(address,bytes32)")

PURCHASED_TOPIC = abi_words.topic("Purchased(uint256,address,bytes32,uint256,uint256)")
ITEM_SET_TOPIC = abi_words.topic(
    "ItemSet(uint256,address,(address,uint96,uint32,uint32,uint16,bool,bool),bytes32)"
)

INDEXED_TOPICS: Final = (PURCHASED_TOPIC, ITEM_SET_TOPIC)


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


def buy_with_sig_call(buy: Buy, signature: bytes) -> bytes:
    return abi.call(
        "PointsSale",
        "buyWithSig",
        buy.buyer,
        buy.item_id,
        buy.quantity,
        buy.max_total,
        buy.reference,
        buy.deadline,
        signature,
    )


def is_order_placed_call(buyer: Address, reference: bytes) -> bytes:
    return IS_ORDER_PLACED + abi_words.encode_address(buyer) + abi_words.encode_bytes32(reference)


def decode_is_order_placed(answer: bytes) -> bool:
    """Raises ValueError."""
    read = WordReader(answer)
    is_placed = read.boolean()
    read.end()
    return is_placed


def decode_log(log: Mapping[str, Any]) -> SaleFact | None:
    """The fact in a log of PointsSale; None for one that ltzd keeps no record of (a role).

    Raises ValueError when such a log is malformed.
    """
    read = LogReader(log)
    if read.topic == PURCHASED_TOPIC:
        return _purchased(read)
    if read.topic == ITEM_SET_TOPIC:
        return _item_set(read)
    return None


def _purchased(read: LogReader) -> Purchased:
    indexed, data = read.indexed, read.data
    fact = Purchased(
        read.position,
        item_id=indexed.uint(),
        buyer=indexed.address(),
        reference=indexed.word(),
        quantity=data.uint(),
        paid=data.uint(),
    )
    read.end()
    return fact


def _item_set(read: LogReader) -> ItemSet:
    indexed, data = read.indexed, read.data
    fact = ItemSet(
        read.position,
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
    read.end()
    return fact
