"""Facts of the chain that ltzd keeps: canonical logs of its contracts, decoded.

Amounts are LTZ's smallest unit. A fact's identity is (block hash, log index).
"""

from dataclasses import dataclass

from ltzd.values import Address, Hash32, Reference


@dataclass(frozen=True, slots=True)
class Transfer:
    block_number: int
    block_hash: Hash32
    log_index: int
    transaction_hash: Hash32
    sender: Address
    recipient: Address
    amount: int


@dataclass(frozen=True, slots=True)
class RewardMinted:
    block_number: int
    block_hash: Hash32
    log_index: int
    transaction_hash: Hash32
    recipient: Address
    reference: Reference
    amount: int


Fact = Transfer | RewardMinted
