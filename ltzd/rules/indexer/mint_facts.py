"""Facts of LTZ: its logs, decoded. Amounts are in LTZ's smallest unit."""

from typing import ClassVar

import msgspec

from ltzd.rules.indexer.log_position import LogPosition
from ltzd.values import Address, Reference


class Transfer(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "transfer"

    position: LogPosition
    sender: Address
    recipient: Address
    amount: int


class RewardMinted(msgspec.Struct, frozen=True):
    kind: ClassVar[str] = "mint"

    position: LogPosition
    recipient: Address
    reference: Reference
    amount: int


Fact = Transfer | RewardMinted
