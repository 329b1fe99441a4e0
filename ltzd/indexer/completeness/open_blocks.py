"""Lists the blocks that may hold logs of the contracts according to their blooms."""

from collections.abc import Sequence

from ltzd.chain.node.node import Node
from ltzd.errors import NodeUnavailable
from ltzd.indexer.completeness.doubts import is_doubted
from ltzd.indexer.contracts import IndexedContract

_HEADERS_AT_ONCE = 256


async def blocks_that_may_hold(
    node: Node, contracts: Sequence[IndexedContract], first: int, last: int
) -> list[int]:
    """The heights in first…last whose bloom does not exclude every contract, in their order.

    On a chain that leaves its blooms empty these are all blocks with transactions. Raises
    NodeUnavailable.
    """
    numbers: list[int] = []
    for start in range(first, last + 1, _HEADERS_AT_ONCE):
        heights = range(start, min(start + _HEADERS_AT_ONCE, last + 1))
        for header in await node.headers(heights):
            if header is None:
                raise NodeUnavailable("The node lacks a settled block", kind="behind")
            if is_doubted(header, contracts, ()) is not False:
                numbers.append(header.number)
    return numbers
