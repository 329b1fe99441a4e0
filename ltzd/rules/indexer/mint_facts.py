"""Facts of LTZ: its logs, decoded. Amounts are in LTZ's smallest unit."""

from dataclasses import dataclass
from typing import ClassVar

from ltzd.rules.indexer.log_position import LogPosition
from ltzd.values import Address, Reference


@dataclass(frozen=True, slots=True)
class Transfer:
    kind: ClassVar[str] = "transfer"

    position: LogPosition
    sender: Address
    recipient: Address
    amount: int


@dataclass(frozen=True, slots=True)
class RewardMinted:
    kind: ClassVar[str] = "mint"

    position: LogPosition
    recipient: Address
    reference: Reference
    amount: int


Fact = Transfer | RewardMinted
