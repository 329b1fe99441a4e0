"""BusinessEscrow's calls, answers and logs (contracts/src/IBusinessEscrow.sol).

Amounts are LTZ's smallest unit, `refund_after` and deadlines Unix seconds. A deal's id works once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

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


@dataclass(frozen=True, slots=True)
class Deal:
    """All zero where there is none."""

    user: Address
    amount: int
    business: Address
    refund_after: int
    status: DealStatus


def deal_call(deal_id: bytes) -> bytes:
    return DEAL + abi_words.encode_bytes32(deal_id)


def decode_deal(answer: bytes) -> Deal:
    """Raises ValueError."""
    read = WordReader(answer)
    deal = Deal(
        user=read.address(),
        amount=read.uint(96),
        business=read.address(),
        refund_after=read.uint(40),
        status=DealStatus(read.uint(8)),
    )
    read.end()
    return deal


def decode_log(log: Mapping[str, Any]) -> EscrowFact | None:
    """The fact in a log of BusinessEscrow; None for one that ltzd keeps no record of (a role).

    Raises ValueError when such a log is malformed.
    """
    read = LogReader(log)
    if read.topic not in {LOCKED_TOPIC, RELEASED_TOPIC, REFUNDED_TOPIC, SPLIT_TOPIC}:
        return None
    fact = _fact(read)
    read.end()
    return fact


def _fact(read: LogReader) -> EscrowFact:
    data = read.data
    deal_id, user, business = read.indexed.word(), read.indexed.address(), read.indexed.address()
    amount = data.uint()
    if read.topic == LOCKED_TOPIC:
        return DealLocked(read.position, deal_id, user, business, amount, data.uint(40))
    if read.topic == SPLIT_TOPIC:
        return DealSplit(read.position, deal_id, user, business, amount, data.uint())
    ended = DealReleased if read.topic == RELEASED_TOPIC else DealRefunded
    return ended(read.position, deal_id, user, business, amount, data.address())
