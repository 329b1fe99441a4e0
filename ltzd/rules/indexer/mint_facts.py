"""Facts of the chain that ltzd keeps: canonical logs of its contracts, decoded.

Amounts are LTZ's smallest unit. A fact's identity is (block hash, log index).
"""

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
