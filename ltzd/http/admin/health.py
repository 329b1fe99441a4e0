"""Health for anybody who asks, without asking the services behind more than once a second."""

import asyncio
from collections.abc import Awaitable, Callable

from ltzd.concurrency.clock import Clock, loop_time
from ltzd.http.services import Health

FRESH_SECONDS = 1.0


class RecentHealth:
    def __init__(self, ask: Callable[[], Awaitable[Health]], clock: Clock = loop_time) -> None:
        self._clock = clock
        self._ask = ask
        self._lock = asyncio.Lock()
        self._known: Health | None = None
        self._at = 0.0

    async def ask(self) -> Health:
        async with self._lock:
            now = self._clock()
            if self._known is None or now - self._at >= FRESH_SECONDS:
                self._known = await self._ask()
                self._at = self._clock()
            return self._known
