"""Many callers, one database commit: each waits for the commit that holds its own item.

While a commit is under way items gather; whatever waits at its end goes into the next. An answer
is given only after its commit, so it is as durable as a commit of its own. An item that makes a
commit fail is tried alone, so that it cannot take its neighbours down; one that lost a race
(`RETRY`) goes into the next commit, for a bounded time.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from ltzd import telemetry
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import DatabaseUnavailable, Unavailable


class Retry(Enum):
    """The answer of an item that must be decided again."""

    RETRY = "again"


RETRY = Retry.RETRY

Item = TypeVar("Item")
Answer = TypeVar("Answer")


_PATIENCE_SECONDS = 20.0
"""For a race that is lost again and again; nobody waits longer for an answer."""


@dataclass(slots=True)
class _Waiting(Generic[Item, Answer]):
    item: Item
    future: asyncio.Future[Answer]
    tired_at: float | None = None
    """When it gives up; None until it has lost a race."""


class BatchWriter(Generic[Item, Answer]):
    """`write` commits items and answers each, in order: a value, or an exception for its caller.

    `kind` is what the metrics call the items.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception | Retry]]],
        kind: str,
        *,
        width: int = 1,
        largest: int = 200,
        bound: int = 20_000,
        clock: Clock = loop_time,
    ) -> None:
        self._clock = clock
        self._write = write
        self._kind = kind
        self._width = width
        self._largest = largest
        self._bound = bound
        self._waiting: deque[_Waiting[Item, Answer]] = deque()
        self._idle = asyncio.Semaphore(0)

    async def submit(self, item: Item) -> Answer:
        """The item's answer after its commit. Raises Unavailable when too many wait already.

        A cancelled caller's item is written all the same.
        """
        if len(self._waiting) >= self._bound:
            raise Unavailable("Too many requests wait for the database")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(item, future))
        self._idle.release()
        return await future

    async def run(self) -> None:
        """Commit until cancelled, `width` commits at a time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._width):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self._idle.acquire()
            taken: list[_Waiting[Item, Answer]] = []
            while self._waiting and len(taken) < self._largest:
                taken.append(self._waiting.popleft())
            if taken:
                await self._commit(taken)

    async def _commit(self, taken: list[_Waiting[Item, Answer]]) -> None:
        try:
            with telemetry.timed(telemetry.GROUP_COMMIT_SECONDS.labels(self._kind)):
                answers = await self._write([one.item for one in taken])
        except DatabaseUnavailable as error:
            answers = [error] * len(taken)
        except Exception as error:  # noqa: BLE001 - it goes to the one caller whose item it is
            if len(taken) > 1:
                for one in taken:
                    await self._commit([one])
                return
            answers = [error]
        telemetry.GROUP_COMMIT_ITEMS.labels(self._kind).observe(len(taken))
        again = [
            one
            for one, answer in zip(taken, answers, strict=True)
            if not self._is_answered(one, answer)
        ]
        # Before whoever came later, and in their own order.
        self._waiting.extendleft(reversed(again))
        for _ in again:
            self._idle.release()

    def _is_answered(self, one: _Waiting[Item, Answer], answer: Answer | Exception | Retry) -> bool:
        """Tell the caller, unless the item goes again."""
        if not isinstance(answer, Retry):
            _tell(one.future, answer)
            return True
        now = self._clock()
        if one.tired_at is None:
            one.tired_at = now + _PATIENCE_SECONDS
        if now < one.tired_at:
            return False
        _tell(one.future, Unavailable("Others were faster again and again"))
        return True


def _tell(future: asyncio.Future[Answer], answer: Answer | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
