"""Many callers, one database commit: each waits for the commit that holds its own item.

While a commit is under way items gather; whatever waits at its end goes into the next. An answer
is given only after its commit, so it is as durable as a commit of its own. An item that makes a
commit fail is tried alone, so that it cannot take its neighbours down; one that lost a race
(`AGAIN`) goes into the next commit.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Generic, TypeVar

from ltzd import telemetry
from ltzd.errors import DatabaseUnavailable, Unavailable


class Again(Enum):
    """The answer of an item that must be decided again."""

    AGAIN = "again"


AGAIN = Again.AGAIN

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class GroupCommit(Generic[Item, Answer]):
    """`write` commits items and answers each, in order: a value, or an exception for its caller."""

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception | Again]]],
        *,
        width: int = 1,
        largest: int = 200,
        bound: int = 20_000,
    ) -> None:
        self._write = write
        self._width = width
        self._largest = largest
        self._bound = bound
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._idle = asyncio.Semaphore(0)

    async def submit(self, item: Item) -> Answer:
        """The item's answer after its commit. Raises Unavailable when too many wait already.

        A cancelled caller's item is written all the same.
        """
        if len(self._waiting) >= self._bound:
            raise Unavailable("Too many requests wait for the database")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
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
            taken: list[tuple[Item, asyncio.Future[Answer]]] = []
            while self._waiting and len(taken) < self._largest:
                taken.append(self._waiting.popleft())
            if taken:
                await self._commit(taken)

    async def _commit(self, taken: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            with telemetry.timed(telemetry.GROUP_COMMIT_SECONDS):
                answers = await self._write([item for item, _ in taken])
        except DatabaseUnavailable as error:
            answers = [error] * len(taken)
        except Exception as error:  # noqa: BLE001 - it goes to the one caller whose item it is
            if len(taken) > 1:
                for one in taken:
                    await self._commit([one])
                return
            answers = [error]
        telemetry.GROUP_COMMIT_EVENTS.observe(len(taken))
        again = []
        for one, answer in zip(taken, answers, strict=True):
            if isinstance(answer, Again):
                again.append(one)
            else:
                _tell(one[1], answer)
        # Before whoever came later, and in their own order.
        self._waiting.extendleft(reversed(again))
        for _ in again:
            self._idle.release()


def _tell(future: asyncio.Future[Answer], answer: Answer | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
