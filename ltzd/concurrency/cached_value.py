"""A value that may be two seconds old, fetched once for all callers that want it meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ltzd.concurrency.clock import Clock, loop_time
from ltzd.concurrency.single_flight import SingleFlight

Value = TypeVar("Value")

_MAX_AGE_SECONDS = 2.0
_REFRESH_SECONDS = 1.0
"""Between two refreshes of a value in use: half of the age that it may have, so that callers seldom
wait for a refresh."""
_IN_USE_SECONDS = 60.0
"""A value that nobody has asked for in this time is not refreshed."""


class CachedValue(Generic[Value]):
    """An empty value, such as an empty list, is not cached."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Value]],
        clock: Clock = loop_time,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._value: Value | None = None
        self._fetched_at = float("-inf")
        self._used_at = float("-inf")
        self._fetches: SingleFlight[None, Value] = SingleFlight("cached value", 1)

    async def get(self) -> Value:
        """Raises what fetching raises."""
        self._used_at = self._clock()
        if self._value and self._is_fresh():
            return self._value
        return await self._fetches.call(None, self._refresh)

    def prefetch(self) -> None:
        """Start fetching the value if it is due, so that a later `get` waits less."""
        if not self._value or not self._is_fresh():
            self._fetches.begin(None, self._refresh)

    async def keep_fresh(self, seconds: float = _REFRESH_SECONDS) -> None:
        """Refresh the value every `seconds` while callers use it, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            if self._clock() - self._used_at < _IN_USE_SECONDS:
                self._fetches.begin(None, self._refresh)

    async def _refresh(self) -> Value:
        started_at = self._clock()
        self._value = value = await self._fetch()
        self._fetched_at = started_at
        return value

    def _is_fresh(self) -> bool:
        return self._clock() - self._fetched_at <= _MAX_AGE_SECONDS
