"""Answers many callers with one call: items that arrive while a call is under way share the next.

For reads whose cost lies in the round trip. An item that arrives alone is sent at once, and nothing
is cached. A cancelled caller does not cancel the call for the others.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from ltzd.concurrency.futures import complete

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """`fetch` answers items in their order: with a value, or an exception for the item's caller.

    An exception that `fetch` raises goes to every caller of the batch.
    """

    def __init__(
        self,
        fetch: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
        *,
        max_concurrent: int = 2,
        max_batch: int = 50,
    ) -> None:
        self._fetch = fetch
        self._max_concurrent = max_concurrent
        self._max_batch = max_batch
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._busy_workers = 0

    async def ask(self, item: Item) -> Answer:
        return await self.begin(item)

    def begin(self, item: Item) -> asyncio.Future[Answer]:
        """Ask without waiting; a caller that no longer wants the answer cancels the future."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._busy_workers < self._max_concurrent:
            self._busy_workers += 1
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        return future

    async def _work(self) -> None:
        """Answer batches until nothing waits."""
        try:
            while self._waiting:
                size = min(self._max_batch, len(self._waiting))
                await self._answer([self._waiting.popleft() for _ in range(size)])
        finally:
            self._busy_workers -= 1

    async def _answer(self, batch: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._fetch([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
            answers = [error] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            complete(future, answer)
