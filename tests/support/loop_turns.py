"""Counts the turns of the event loop, for tests of work that must leave turns to others.

A callback or task that such a test leaves behind would spin the loop of all later tests of its
worker: `is_spinning` finds one.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SPINNING_TURNS = 1_000


class LoopTurns:
    def __init__(self) -> None:
        self.count = 0
        self.is_over = False

    def take(self) -> None:
        """Counts a turn, and takes the next one unless the block is over."""
        if not self.is_over:
            self.count += 1
            asyncio.get_running_loop().call_soon(self.take)


@contextmanager
def counted_turns() -> Iterator[LoopTurns]:
    """Counts while the block runs: a callback left behind would spin the loop for ever."""
    turns = LoopTurns()
    turns.take()
    try:
        yield turns
    finally:
        turns.is_over = True


async def is_spinning() -> bool:
    """Whether something besides the caller is due in each of a thousand turns in a row."""
    loop: Any = asyncio.get_running_loop()
    due = loop._ready  # asyncio has no public way to see what is due.
    for _ in range(SPINNING_TURNS):
        await asyncio.sleep(0)
        if not due:
            return False
    return True
