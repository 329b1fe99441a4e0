"""Mined blocks: header, transactions, receipts and logs.

A block references its parent, so a fork is a chain of references and the EVM looks nothing up by
number. `state_root` is the root of the state after the block; it differs from the header's once a
cheat code has changed that state.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from ltzd.dev.tester_chain.execution.rlp_codec import encode
from ltzd.dev.tester_chain.execution.transaction import EvmTransaction
from ltzd.values import Address, Hash32, keccak

Header = Any
"""py-evm's PragueBlockHeader; Any because its type declares every field optional."""


class MinedLog(msgspec.Struct, frozen=True):
    address: Address
    topics: tuple[Hash32, ...]
    data: bytes
    transaction_index: int
    index: int
    """The position among all logs of the block."""


class MinedReceipt(msgspec.Struct, frozen=True, dict=True):
    succeeded: bool
    gas_used: int
    cumulative_gas_used: int
    logs: tuple[MinedLog, ...]
    contract_address: Address | None

    @cached_property
    def bloom(self) -> int:
        bloom = 0
        for log in self.logs:
            bloom |= bloom_of(log.address)
            for topic in log.topics:
                bloom |= bloom_of(topic)
        return bloom

    def encoded(self, type_id: int) -> bytes:
        """The encoding whose trie gives the header's receipts root."""
        logs = [[log.address, log.topics, log.data] for log in self.logs]
        status = b"\x01" if self.succeeded else b""
        bloom = self.bloom.to_bytes(256, "big")
        encoded = encode([status, self.cumulative_gas_used, bloom, logs])
        return bytes((type_id,)) + encoded if type_id else encoded


class MinedBlock:
    def __init__(
        self,
        header: Header,
        parent: "MinedBlock | None",
        transactions: Sequence[EvmTransaction] = (),
        receipts: Sequence[MinedReceipt] = (),
    ) -> None:
        self.header = header
        self.parent = parent
        self.transactions = tuple(transactions)
        self.receipts = tuple(receipts)
        self.number = int(header.block_number)
        self.hash = Hash32(header.hash)
        self.timestamp = int(header.timestamp)
        self.base_fee = int(header.base_fee_per_gas)
        self.bloom = int(header.bloom)
        self.state_root = Hash32(header.state_root)
        self.database: Any = None
        """Where the state is, for a block whose state is not in the chain's database."""

    @cached_property
    def logs(self) -> tuple[MinedLog, ...]:
        return tuple(log for receipt in self.receipts for log in receipt.logs)

    @cached_property
    def size_bytes(self) -> int:
        return len(encode(self.header)) + sum(len(each.raw) + 3 for each in self.transactions)

    def may_hold(self, value: bytes) -> bool:
        """False if the bloom filter excludes every log with this address or topic."""
        bits = bloom_of(value)
        return self.bloom & bits == bits

    def ancestry(self) -> "Iterator[MinedBlock]":
        """Yield this block, its parent and so on to genesis."""
        block: MinedBlock | None = self
        while block is not None:
            yield block
            block = block.parent


@lru_cache(maxsize=65_536)
def bloom_of(value: bytes) -> int:
    """The three bits that an address or topic sets in a bloom filter of 2,048."""
    digest = keccak(value)
    return (
        1 << (int.from_bytes(digest[0:2], "big") & 2047)
        | 1 << (int.from_bytes(digest[2:4], "big") & 2047)
        | 1 << (int.from_bytes(digest[4:6], "big") & 2047)
    )
