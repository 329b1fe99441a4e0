"""Refuses blocks whose times lie ahead of this machine's clock, unless another node shows them too.

A false time would stay in the index, because no later block contradicts it. If the chain's time was
moved ahead on purpose, or this machine's clock is behind, all nodes agree. A single node is
believed. Times are Unix seconds.
"""

import time
from collections.abc import Sequence
from typing import Final

from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock
from ltzd.errors import NodeUnavailable
from ltzd.indexer.slices import slices

BLOCK_TIME: Final = "block_time"
"""A node shows a block from the future that another node does not show with that time."""

_MOST_SECONDS_AHEAD: Final = 15 * 60
_HEADERS_AT_ONCE: Final = 100


async def check_future_blocks(
    node: Node, blocks: Sequence[Header], wall_clock: Clock = time.time
) -> None:
    """Raises NodeUnavailable for blocks of the future that no second node confirms.

    The node is reported if the second node contradicts it, but not if that node lacks the blocks.
    """
    now = wall_clock()
    ahead = [block for block in blocks if block.timestamp > now + _MOST_SECONDS_AHEAD]
    if not ahead or node.is_alone:
        return
    witness = next(iter(node.others(ahead[-1].number)), None)
    if witness is None:
        raise NodeUnavailable(
            f"Block {ahead[-1].number} has a time of the future and no other node has it yet",
            kind="behind",
        )
    for part in slices(ahead, _HEADERS_AT_ONCE):
        headers = await witness.headers([block.number for block in part])
        for block, header in zip(part, headers, strict=True):
            if header is None or (header.hash, header.timestamp) != (block.hash, block.timestamp):
                node.report_contradiction(BLOCK_TIME)
                raise NodeUnavailable(
                    f"The node's block {block.number} is from {block.timestamp - now:.0f} s ahead "
                    "of this machine's clock, and another node does not show it"
                )
