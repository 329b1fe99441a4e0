"""A fact that may be a second old, asked for once for everybody who wants it meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ltzd.concurrency.clock import Clock, loop_time

Fact = TypeVar("Fact")

_FRESH_SECONDS = 1.0


class CachedValue(Generic[Fact]):
    """A fact that is nothing (no wallet, say) is asked for again at once."""

    def __init__(self, ask: Callable[[], Awaitable[Fact]], clock: Clock = loop_time) -> None:
        self._clock = clock
        self._ask = ask
        self._known: Fact | None = None
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[Fact] | None = None

    async def now(self) -> Fact:
        """Raises what asking raises."""
        if self._known and self._age() <= _FRESH_SECONDS:
            return self._known
        # Shielded: a caller that gives up must not take the others' answer with it.
        return await asyncio.shield(self._asked())

    def prepare(self) -> None:
        """Begin to ask, if that will be needed: who calls `now` soon waits less."""
        if not self._known or self._age() > _FRESH_SECONDS:
            self._asked()

    def _asked(self) -> asyncio.Task[Fact]:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._look())
            self._asking.add_done_callback(_heard)
        return self._asking

    async def _look(self) -> Fact:
        asked_at = self._clock()
        self._known = known = await self._ask()
        self._asked_at = asked_at
        return known

    def _age(self) -> float:
        return self._clock() - self._asked_at


def _heard(asking: asyncio.Task[Fact]) -> None:
    """Who only prepared does not care that it failed."""
    if not asking.cancelled():
        asking.exception()
