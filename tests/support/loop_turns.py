"""Counts the turns of the event loop, for tests that other work must not hold up."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class LoopTurns:
    def __init__(self) -> None:
        self.count = 0


@contextmanager
def counted_turns() -> Iterator[LoopTurns]:
    """Counts from the block's begin to its end; a callback left behind would spin the loop."""
    loop, turns = asyncio.get_running_loop(), LoopTurns()

    def count() -> None:
        nonlocal handle
        turns.count += 1
        handle = loop.call_soon(count)

    handle = loop.call_soon(count)
    try:
        yield turns
    finally:
        handle.cancel()
