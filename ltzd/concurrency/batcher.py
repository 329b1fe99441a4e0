"""Many callers, one question: what is asked while a question is under way waits for the next.

For reads, whose cost is in the asking: who comes alone is asked for at once. Nothing is kept, and
a caller who goes away takes nobody's answer along.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """`ask` answers items in their order: a value, or an exception for its caller.

    What it raises goes to all of them.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
        *,
        at_once: int = 2,
        largest: int = 50,
    ) -> None:
        self._ask = ask
        self._at_once = at_once
        self._largest = largest
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._asking: set[asyncio.Task[None]] = set()
        self._under_way = 0

    async def ask(self, item: Item) -> Answer:
        return await self.begin(item)

    def begin(self, item: Item) -> asyncio.Future[Answer]:
        """For who has another question meanwhile; who loses interest cancels it."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._under_way < self._at_once:
            self._under_way += 1
            task = asyncio.create_task(self._serve())
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        return future

    async def _serve(self) -> None:
        """Until nothing waits."""
        try:
            while self._waiting:
                most = min(self._largest, len(self._waiting))
                await self._answer([self._waiting.popleft() for _ in range(most)])
        finally:
            self._under_way -= 1

    async def _answer(self, taken: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._ask([item for item, _ in taken])
        except asyncio.CancelledError:
            for _, future in taken:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it goes to the callers
            answers = [error] * len(taken)
        for (_, future), answer in zip(taken, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
