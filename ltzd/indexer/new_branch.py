"""Reads a reorg's new branch, so that it is committed together with the undoing of the old one.

A reader of the database then sees the old branch or the new one, and never a height or balance in
between. Nothing is written here.
"""

from collections.abc import Sequence

import msgspec

from ltzd.concurrency.clock import Clock
from ltzd.indexer.branches import Undo
from ltzd.indexer.policy import IndexerPolicy
from ltzd.indexer.reading import BlockRange, BlockReader, joined
from ltzd.store.indexer.chains import Cursor
from ltzd.values import Hash32


class NewBranch(msgspec.Struct, frozen=True):
    """`blocks` follow the fork; None if the chain ends at the fork."""

    head_number: int
    blocks: BlockRange | None


class BranchReader:
    """Remembers for how long the branch of a fork could not be read as a whole."""

    def __init__(self, reader: BlockReader, policy: IndexerPolicy, clock: Clock) -> None:
        self._reader = reader
        self._policy = policy
        self._clock = clock
        self._incomplete: tuple[Hash32, float] | None = None
        """The fork of a branch that was read in part only, and when this was first so."""

    async def read(self, undo: Undo, cursor: Cursor) -> NewBranch | None:
        """The branch beyond the height of the old one, or as far as one commit may hold it.

        Returns None while a part of it cannot be read, for example because the chain changes; after
        `second_check_seconds` the part that can be read is enough. Raises NodeUnavailable, and
        Broken for a log that only another contract can have written.
        """
        number, fork_hash = undo.fork
        head, block_at_fork = await undo.node.head_and_block(number)
        if block_at_fork is None or block_at_fork.hash != fork_hash:
            return None
        if head.number == number:
            return NewBranch(head.number, None)
        last = min(
            head.number,
            cursor.number + self._policy.head_blocks,
            number + self._policy.branch_blocks,
        )
        parts = await self._read_parts(undo, last)
        if not parts:
            return None
        branch = NewBranch(head.number, joined(parts))
        if parts[-1].last[0] == last or _count_facts(parts) >= self._policy.branch_facts:
            self._incomplete = None
            return branch
        return branch if self._note_incomplete(fork_hash) else None

    async def _read_parts(self, undo: Undo, last: int) -> list[BlockRange]:
        """Ranges that follow the fork and each other, up to block `last` if that can be read.

        Returns an empty list if they do not fit each other.
        """
        parts: list[BlockRange] = []
        number, tip = undo.fork
        while number < last and _count_facts(parts) < self._policy.branch_facts:
            part = await self._reader.read_head(
                undo.node, number + 1, min(last, number + self._policy.head_blocks)
            )
            if part is None:
                break
            if part.parent_hash != tip:
                return []
            parts.append(part)
            number, tip = part.last
        return parts

    def _note_incomplete(self, fork_hash: Hash32) -> bool:
        """Note that the branch is incomplete; return whether that has lasted long enough."""
        now = self._clock()
        if self._incomplete is None or self._incomplete[0] != fork_hash:
            self._incomplete = fork_hash, now
        return now - self._incomplete[1] >= self._policy.second_check_seconds


def _count_facts(parts: Sequence[BlockRange]) -> int:
    return sum(part.fact_counts().total() for part in parts)
