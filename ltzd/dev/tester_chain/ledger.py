"""Which blocks there are and which of them are the chain.

Every block ever mined is found by hash, those that a reorg or revert has left included. By number,
and their transactions by hash, only those of the chain.
"""

from dataclasses import dataclass

from ltzd.dev.tester_chain.block import Block
from ltzd.values import Hash32

SAFE_DEPTH = 32
FINALIZED_DEPTH = 64


@dataclass(frozen=True)
class HeadChange:
    """Blocks that left the chain, newest first, and blocks that joined, oldest first."""

    removed: tuple[Block, ...]
    added: tuple[Block, ...]


class Ledger:
    def __init__(self, genesis: Block) -> None:
        self.chain: list[Block] = [genesis]
        self._by_hash: dict[Hash32, Block] = {genesis.hash: genesis}
        self._mined: dict[Hash32, tuple[Block, int]] = {}

    @property
    def head(self) -> Block:
        return self.chain[-1]

    @property
    def safe(self) -> Block:
        return self.chain[max(0, self.head.number - SAFE_DEPTH)]

    @property
    def finalized(self) -> Block:
        return self.chain[max(0, self.head.number - FINALIZED_DEPTH)]

    def at(self, number: int) -> Block | None:
        return self.chain[number] if 0 <= number < len(self.chain) else None

    def by_hash(self, block_hash: Hash32) -> Block | None:
        return self._by_hash.get(block_hash)

    def is_canonical(self, block: Block) -> bool:
        return self.at(block.number) is block

    def mined(self, transaction_hash: Hash32) -> tuple[Block, int] | None:
        """The block of the chain that holds the transaction, and its place there."""
        return self._mined.get(transaction_hash)

    def set_head(self, block: Block) -> HeadChange:
        """Make the chain end in `block`, in one step that no reader sees halfway."""
        added = []
        for joining in block.back():
            if self.is_canonical(joining):
                break
            added.append(joining)
        fork = block.number - len(added)
        removed = tuple(reversed(self.chain[fork + 1 :]))
        for left in removed:
            for one in left.transactions:
                del self._mined[one.hash]
        del self.chain[fork + 1 :]
        for joining in reversed(added):
            self.chain.append(joining)
            self._by_hash[joining.hash] = joining
            for index, one in enumerate(joining.transactions):
                self._mined[one.hash] = (joining, index)
        return HeadChange(removed, tuple(reversed(added)))
