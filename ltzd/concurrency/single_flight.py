"""Callers who ask the same thing at the same time share one call, a flight."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ltzd.errors import Unavailable

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class SingleFlight(Generic[Key, Answer]):
    """At most `most` under way; `name` tells them apart in a list of tasks.

    `unavailable` makes the error for a caller whose call was cancelled or that is one too many.
    """

    def __init__(
        self, name: str, most: int, unavailable: Callable[[str], Unavailable] = Unavailable
    ) -> None:
        self._name = name
        self._most = most
        self._unavailable = unavailable
        self._under_way: dict[Key, asyncio.Task[Answer]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    async def close(self) -> None:
        """Ends those under way; their callers get `unavailable`."""
        flights = list(self._under_way.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    async def share(self, key: Key, start: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Whatever the flight for `key` brings; `start` is called if there is none."""
        flight = self.take_off(key, start)
        try:
            # Shielded: a caller that gives up must not take the others' answer with it.
            return await asyncio.shield(flight)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if flight.cancelled() and not (caller and caller.cancelling()):
                raise self._unavailable("The client is closed") from None
            raise

    def take_off(
        self, key: Key, start: Callable[[], Coroutine[Any, Any, Answer]]
    ) -> asyncio.Task[Answer]:
        """For who does not wait for the answer."""
        if key in self._under_way:
            return self._under_way[key]
        if len(self._under_way) >= self._most:
            raise self._unavailable("Too many look-ups are waiting")
        flight = asyncio.create_task(start(), name=self._name)
        self._under_way[key] = flight
        flight.add_done_callback(lambda done: self._land(key, done))
        return flight

    def _land(self, key: Key, flight: asyncio.Task[Answer]) -> None:
        del self._under_way[key]
        # Looked at here, so that a failure nobody waits for any more is not reported as forgotten.
        if not flight.cancelled():
            flight.exception()
