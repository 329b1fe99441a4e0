"""Waiting for a fact instead of sleeping for a guess."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
_TICK_SECONDS = 0.02


class Stopwatch:
    """The seconds since it was made that the machine was there for this process.

    The event loop is woken every 20 ms; the time by which it wakes up later does not count. So an
    upper bound holds on a loaded machine too, where it would not on the wall clock.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._wake(weakref.ref(self), asyncio.get_running_loop().time())

    def seconds(self) -> float:
        return self._seconds

    @staticmethod
    def _wake(watch: "weakref.ref[Stopwatch]", since: float) -> None:
        """Continues while the stopwatch is referred to."""
        loop = asyncio.get_running_loop()
        now, stopwatch = loop.time(), watch()
        if stopwatch is not None:
            stopwatch._seconds += min(now - since, 2 * _TICK_SECONDS)
            loop.call_later(_TICK_SECONDS, Stopwatch._wake, watch, now)


async def until(check: Callable[[], Awaitable[T]], seconds: float = 30.0) -> T:
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
