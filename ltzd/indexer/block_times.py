"""Refuses blocks that are dated after a later block, unless another node shows these times too.

Other nodes show the time of a range's last block (`log_witnesses`), so the times of the blocks
before it need no comparison as long as none is later. A single node is believed. No clock decides:
this machine's may be wrong, and a chain's time may be moved ahead on purpose. Times are Unix
seconds.
"""

from collections.abc import Sequence
from typing import Final

from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
from ltzd.errors import NodeUnavailable
from ltzd.indexer.slices import slices

BLOCK_TIME: Final = "block_time"
"""A node shows a block with another time than its hash proves, or than other nodes show."""

_HEADERS_AT_ONCE: Final = 100


async def check_block_times(node: Node, blocks: Sequence[Header]) -> None:
    """Raises NodeUnavailable for blocks dated after the last one that no second node confirms.

    The node is reported if the second node contradicts it, but not if that node lacks the blocks.
    """
    last = blocks[-1]
    late = [block for block in blocks if block.timestamp > last.timestamp]
    if not late or node.is_alone:
        return
    witness = next(iter(node.others(late[-1].number)), None)
    if witness is None:
        raise NodeUnavailable(
            f"Block {late[-1].number} is dated after block {last.number}, and no other node has it "
            "yet",
            kind="behind",
        )
    for part in slices(late, _HEADERS_AT_ONCE):
        headers = await witness.headers([block.number for block in part])
        for block, header in zip(part, headers, strict=True):
            if header is None or (header.hash, header.timestamp) != (block.hash, block.timestamp):
                node.report_contradiction(BLOCK_TIME)
                raise NodeUnavailable(
                    f"The node dates block {block.number} after block {last.number}, and another "
                    "node does not"
                )
