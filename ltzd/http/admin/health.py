"""Health for anybody who asks, without asking the services behind more than once a second."""

import asyncio
from collections.abc import Awaitable, Callable

from ltzd.http.services import Health

FRESH_SECONDS = 1.0


class RecentHealth:
    def __init__(self, ask: Callable[[], Awaitable[Health]]) -> None:
        self._ask = ask
        self._lock = asyncio.Lock()
        self._known: Health | None = None
        self._at = 0.0

    async def ask(self) -> Health:
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._known is None or now - self._at >= FRESH_SECONDS:
                self._known = await self._ask()
                self._at = asyncio.get_running_loop().time()
            return self._known
