"""Facts of LTZ: its logs, decoded. Amounts are in LTZ's smallest unit."""

from dataclasses import dataclass

from ltzd.rules.indexer.log_position import LogPosition
from ltzd.values import Address, Reference


@dataclass(frozen=True, slots=True)
class Transfer:
    position: LogPosition
    sender: Address
    recipient: Address
    amount: int


@dataclass(frozen=True, slots=True)
class RewardMinted:
    position: LogPosition
    recipient: Address
    reference: Reference
    amount: int


Fact = Transfer | RewardMinted
