"""Waiting for a fact instead of sleeping for a guess."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ltzd.concurrency.clock import loop_time

T = TypeVar("T")
_TICK_SECONDS = 0.02


class Stopwatch:
    """The seconds since it was made, on a clock that stands still while the machine is not there.

    So an upper bound holds on a loaded machine too; see `steady_clock`.
    """

    def __init__(self) -> None:
        self._begun = loop_time()

    def seconds(self) -> float:
        return loop_time() - self._begun


async def until(check: Callable[[], Awaitable[T]], seconds: float = 60.0) -> T:
    """Ask `check` again until its answer is truthy; fail with its last answer after `seconds`.

    The seconds are those of a stopwatch: on a loaded machine they last longer.
    """
    watch = Stopwatch()
    while True:
        answer = await check()
        if answer:
            return answer
        if watch.seconds() > seconds:
            raise AssertionError(f"still {answer!r} after {seconds} s: {check}")
        await asyncio.sleep(_TICK_SECONDS)


def at_once(check: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never waits and returns its result."""
    try:
        check.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    check.close()
    raise AssertionError("it waits")
