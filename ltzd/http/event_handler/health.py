"""The health of the services, read at most once a second however many callers ask."""

import asyncio
from collections.abc import Awaitable, Callable

from ltzd.http.services import Health

MAX_AGE_SECONDS = 1.0


class CachedHealth:
    def __init__(self, read: Callable[[], Awaitable[Health]]) -> None:
        self._read = read
        self._lock = asyncio.Lock()
        self._health: Health | None = None
        self._read_at = 0.0

    async def read(self) -> Health:
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._health is None or now - self._read_at >= MAX_AGE_SECONDS:
                self._health = await self._read()
                self._read_at = asyncio.get_running_loop().time()
            return self._health
