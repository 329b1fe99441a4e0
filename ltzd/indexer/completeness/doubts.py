"""Finds the blocks of a range whose bloom shows logs that an answer lacks.

A bloom also matches by chance, and more often the more of its bits are set. A match counts as a
doubt if its probability by chance is at most 1 %. On a busy chain no bloom is empty enough for
that; there the totals and the audit find missing logs.
"""

from collections.abc import Iterable, Sequence

import msgspec

from ltzd.chain.node import bloom
from ltzd.chain.node.answers.typed import Header
from ltzd.indexer.contracts import IndexedContract, NodeLog
from ltzd.values import address_of

MOST_CHANCE = 0.01
_PROBES = 3
"""Blocks that are asked about if a whole range seems to have no logs, and no bloom proves it."""


class RangeDoubts(msgspec.Struct, frozen=True):
    """`doubted` blocks lack a log according to their bloom; `open` blocks may lack one."""

    doubted: Sequence[Header]
    open: Sequence[Header]

    def probes(self) -> Sequence[Header]:
        """A few of the open blocks, spread over the range."""
        step = max(1, len(self.open) // _PROBES)
        return self.open[::step][:_PROBES]


def is_doubted(
    header: Header, contracts: Sequence[IndexedContract], logs: Iterable[NodeLog]
) -> bool | None:
    """Whether the bloom shows a log that is not among a block's `logs`.

    Returns None if a log may be missing, but the bloom may also match by chance. An empty bloom
    proves nothing in a block with transactions and without logs: some chains fill no blooms.
    """
    # A block of thousands of logs has a few kinds: texts are compared before they are parsed.
    kinds = {(entry["address"], *entry["topics"][:1]) for entry in logs}
    if not any(header.bloom):
        return None if not kinds and header.transactions != 0 else False
    answered = {address_of(kind[0]) for kind in kinds}
    explained = {topic.lower() for kind in kinds for topic in kind[1:]}
    is_open = False
    for contract in contracts:
        is_known = contract.address in answered
        # Of a contract that has answered, a topic may be in the bloom because of another contract.
        missing = [
            topic
            for topic in contract.topics
            if not is_known or f"0x{topic.hex()}" not in explained
        ]
        if not missing or not bloom.may_hold_any(header.bloom, contract.address, missing):
            continue
        if bloom.chance(header.bloom, len(missing), is_known=is_known) <= MOST_CHANCE:
            return True
        is_open = True
    return None if is_open else False
