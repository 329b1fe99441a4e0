"""Callers that wait for an event about a key, any number of them for each key."""

import asyncio
from typing import Generic, TypeVar

from ltzd.concurrency.futures import complete

Key = TypeVar("Key")
Result = TypeVar("Result")


class KeyedWaiters(Generic[Key, Result]):
    def __init__(self) -> None:
        self._futures: dict[Key, set[asyncio.Future[Result | None]]] = {}

    def keys(self) -> list[Key]:
        """The keys that callers are waiting for."""
        return list(self._futures)

    async def wait(self, key: Key, seconds: float) -> Result | None:
        """Return what `resolve` is called with for this key, or None after `seconds`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result | None] = loop.create_future()
        self._futures.setdefault(key, set()).add(future)
        # A bare timer: asyncio.timeout takes several times as long, and every event waits here.
        timer = loop.call_later(seconds, complete, future, None)
        try:
            return await future
        finally:
            timer.cancel()
            futures = self._futures[key]
            futures.discard(future)
            if not futures:
                del self._futures[key]

    def resolve(self, key: Key, result: Result) -> None:
        """Return `result` to every caller that waits for the key now."""
        for future in self._futures.get(key, ()):
            complete(future, result)
