"""Waiting for a fact instead of sleeping for a guess."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(check: Callable[[], Awaitable[T]], seconds: float = 30.0) -> T:
    """Ask `check` again until its answer is truthy; fail with its last answer after `seconds`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        answer = await check()
        if answer:
            return answer
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"still {answer!r} after {seconds} s: {check}")
        await asyncio.sleep(0.02)
