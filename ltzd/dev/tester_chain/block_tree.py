"""All blocks ever mined, and the canonical chain among them.

A lookup by block hash also finds blocks that a reorg or revert has orphaned. Lookups by number and
by transaction hash find canonical blocks only.
"""

import msgspec

from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.values import Hash32

SAFE_DEPTH = 32
FINALIZED_DEPTH = 64


class HeadChange(msgspec.Struct, frozen=True):
    """Blocks orphaned by a new head, newest first, and blocks added by it, oldest first."""

    removed: tuple[MinedBlock, ...]
    added: tuple[MinedBlock, ...]


class BlockTree:
    def __init__(self, genesis: MinedBlock) -> None:
        self.chain: list[MinedBlock] = [genesis]
        self._by_hash: dict[Hash32, MinedBlock] = {genesis.hash: genesis}
        self._mined: dict[Hash32, tuple[MinedBlock, int]] = {}

    @property
    def head(self) -> MinedBlock:
        return self.chain[-1]

    @property
    def safe(self) -> MinedBlock:
        return self.chain[max(0, self.head.number - SAFE_DEPTH)]

    @property
    def finalized(self) -> MinedBlock:
        return self.chain[max(0, self.head.number - FINALIZED_DEPTH)]

    def at(self, number: int) -> MinedBlock | None:
        return self.chain[number] if 0 <= number < len(self.chain) else None

    def by_hash(self, block_hash: Hash32) -> MinedBlock | None:
        return self._by_hash.get(block_hash)

    def is_canonical(self, block: MinedBlock) -> bool:
        return self.at(block.number) is block

    def mined(self, transaction_hash: Hash32) -> tuple[MinedBlock, int] | None:
        """The canonical block that holds the transaction, and its index in that block."""
        return self._mined.get(transaction_hash)

    def set_head(self, block: MinedBlock) -> HeadChange:
        """Make `block` the head of the canonical chain, atomically for readers."""
        added = []
        for added_block in block.ancestry():
            if self.is_canonical(added_block):
                break
            added.append(added_block)
        fork = block.number - len(added)
        removed = tuple(reversed(self.chain[fork + 1 :]))
        for orphan in removed:
            for transaction in orphan.transactions:
                del self._mined[transaction.hash]
        del self.chain[fork + 1 :]
        for added_block in reversed(added):
            self.chain.append(added_block)
            self._by_hash[added_block.hash] = added_block
            for index, transaction in enumerate(added_block.transactions):
                self._mined[transaction.hash] = (added_block, index)
        return HeadChange(removed, tuple(reversed(added)))
