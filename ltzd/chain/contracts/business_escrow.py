"""Calls, answers and logs of BusinessEscrow (contracts/src/IBusinessEscrow.sol).

Amounts are in LTZ's smallest unit, `refund_after` and deadlines in Unix seconds. A deal's id works
once.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec

from ltzd.chain.contracts import abi_words
from ltzd.chain.contracts.abi_words import LogReader, WordReader
from ltzd.rules.indexer.contract_facts import (
    DealLocked,
    DealRefunded,
    DealReleased,
    DealSplit,
    EscrowFact,
)
from ltzd.values import Address

DEAL = abi_words.selector("deal(bytes32)")

LOCKED_TOPIC = abi_words.topic("Locked(bytes32,address,address,uint256,uint40)")
RELEASED_TOPIC = abi_words.topic("Released(bytes32,address,address,uint256,address)")
REFUNDED_TOPIC = abi_words.topic("Refunded(bytes32,address,address,uint256,address)")
SPLIT_TOPIC = abi_words.topic("Split(bytes32,address,address,uint256,uint256)")

INDEXED_TOPICS: Final = (LOCKED_TOPIC, RELEASED_TOPIC, REFUNDED_TOPIC, SPLIT_TOPIC)


class DealStatus(IntEnum):
    NONE = 0
    LOCKED = 1
    RELEASED = 2
    REFUNDED = 3
    SPLIT = 4


class Deal(msgspec.Struct, frozen=True):
    """All fields are zero if there is no such deal."""

    user: Address
    amount: int
    business: Address
    refund_after: int
    status: DealStatus


def deal_call(deal_id: bytes) -> bytes:
    return DEAL + abi_words.encode_bytes32(deal_id)


def decode_deal(answer: bytes) -> Deal:
    """Raises ValueError."""
    reader = WordReader(answer)
    deal = Deal(
        user=reader.address(),
        amount=reader.uint(96),
        business=reader.address(),
        refund_after=reader.uint(40),
        status=DealStatus(reader.uint(8)),
    )
    reader.end()
    return deal


def decode_log(log: Mapping[str, Any]) -> EscrowFact | None:
    """The fact in a log of BusinessEscrow, or None for an event that is not indexed (roles).

    Raises ValueError when such a log is malformed.
    """
    reader = LogReader(log)
    if reader.topic not in {LOCKED_TOPIC, RELEASED_TOPIC, REFUNDED_TOPIC, SPLIT_TOPIC}:
        return None
    fact = _fact(reader)
    reader.end()
    return fact


def _fact(reader: LogReader) -> EscrowFact:
    data = reader.data
    deal_id, user, business = (
        reader.indexed.word(),
        reader.indexed.address(),
        reader.indexed.address(),
    )
    amount = data.uint()
    if reader.topic == LOCKED_TOPIC:
        return DealLocked(reader.position, deal_id, user, business, amount, data.uint(40))
    if reader.topic == SPLIT_TOPIC:
        return DealSplit(reader.position, deal_id, user, business, amount, data.uint())
    ended = DealReleased if reader.topic == RELEASED_TOPIC else DealRefunded
    return ended(reader.position, deal_id, user, business, amount, data.address())
