"""Wall-clock times of a chain's blocks. Throughput is counted from one block to another.

Between other moments the count would be wrong by up to one block.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import time

from ltzd.chain.node.rpc import Rpc

_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Seen:
    """`at` is the wall-clock time when the block was first seen."""

    at: float
    number: int


class Blocks:
    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def between(self, began: float, ended: float) -> tuple[Seen, Seen]:
        """Returns the first and the last block seen in this period."""
        in_period = [each for each in self.seen if began <= each.at <= ended]
        if len(in_period) < 2:
            raise SystemExit("there came less than two blocks: measure for longer")
        return in_period[0], in_period[-1]

    def interval(self, began: float, ended: float) -> float:
        """Returns the average seconds from one block to the next."""
        first, last = self.between(began, ended)
        return (last.at - first.at) / (last.number - first.number)


@asynccontextmanager
async def watched(rpc: Rpc) -> AsyncIterator[Blocks]:
    blocks = Blocks()
    watching = asyncio.create_task(_watch(rpc, blocks))
    try:
        yield blocks
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(rpc: Rpc, blocks: Blocks) -> None:
    latest = await height(rpc)
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        number = await height(rpc)
        if number != latest:
            latest = number
            blocks.seen.append(Seen(time(), number))


async def height(rpc: Rpc) -> int:
    return int(await rpc.call("eth_blockNumber"), 16)
