"""Callers with the same question at the same time share one call."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ltzd.errors import Unavailable

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class SingleFlight(Generic[Key, Answer]):
    """Runs at most one call for each key and `max_calls` in all.

    `name` names the calls' tasks. `unavailable` makes the error that a caller gets if too many
    calls are under way, or if `close` ends its call.
    """

    def __init__(
        self, name: str, max_calls: int, unavailable: Callable[[str], Unavailable] = Unavailable
    ) -> None:
        self._name = name
        self._max_calls = max_calls
        self._unavailable = unavailable
        self._calls: dict[Key, asyncio.Task[Answer]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    async def close(self) -> None:
        """Cancel the calls under way."""
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def call(self, key: Key, start: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Return or raise what the call for `key` does; `start` begins it if none is under way."""
        task = self.begin(key, start)
        try:
            # Shielded: a cancelled caller must not cancel the call for the others.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and not (caller and caller.cancelling()):
                raise self._unavailable(f"{self._name}: closed") from None
            raise

    def begin(
        self, key: Key, start: Callable[[], Coroutine[Any, Any, Answer]]
    ) -> asyncio.Task[Answer]:
        """Like `call`, without waiting for the answer."""
        if key in self._calls:
            return self._calls[key]
        if len(self._calls) >= self._max_calls:
            raise self._unavailable(f"{self._name}: too many calls are under way")
        task = asyncio.create_task(start(), name=self._name)
        self._calls[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))
        return task

    def _forget(self, key: Key, task: asyncio.Task[Answer]) -> None:
        del self._calls[key]
        # Retrieved, so that asyncio does not log a failure whose callers are all gone.
        if not task.cancelled():
            task.exception()
