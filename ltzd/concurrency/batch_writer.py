"""Group commit: many callers' items in one database transaction.

Items gather while a commit is under way; the next commit takes what waits at its end. A caller gets
its answer only after the commit that holds its item, so the answer is as durable as one of a commit
of its own. If a commit fails, its items are committed one by one, so that a bad item fails alone.
An item answered with `RETRY` lost a race and goes into the next commit, for a bounded time.

Items with the same key (such as a user) are written one after the other: each only after the commit
of the item before it, so that two of them never race for the same rows.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from enum import Enum
from typing import Generic, TypeVar

import msgspec

from ltzd import telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.futures import complete
from ltzd.errors import DatabaseUnavailable, Unavailable


class Retry(Enum):
    """The answer for an item that must be decided again."""

    RETRY = "retry"


RETRY = Retry.RETRY

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Pending(msgspec.Struct, Generic[Item, Answer]):
    """`give_up_at` is set when the item loses its first race."""

    item: Item
    key: Hashable
    future: asyncio.Future[Answer]
    give_up_at: float | None = None


class BatchWriter(Generic[Item, Answer]):
    """`write` commits items and answers them in order: a value, or an exception for the caller.

    `kind` labels the metrics. `key_of` returns an item's key; without it each item has its own. At
    most `width` commits run at a time, each of at most `max_batch` items; `submit` refuses items
    once `max_waiting` wait. An item that keeps losing races is given up `max_retry_seconds` after
    its first lost race.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception | Retry]]],
        kind: str,
        *,
        key_of: Callable[[Item], Hashable] | None = None,
        width: int = 1,
        max_batch: int = 200,
        max_waiting: int = 20_000,
        max_retry_seconds: float = 20.0,
    ) -> None:
        self._write = write
        self._kind = kind
        self._key_of = key_of
        self._width = width
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._max_retry_seconds = max_retry_seconds
        self._waiting: dict[Hashable, deque[_Pending[Item, Answer]]] = {}
        """The waiting items by key; a key whose item is being written has an entry, too."""
        self._ready: deque[Hashable] = deque()
        """The keys that have waiting items, and none that is being written."""
        self._waiting_count = 0
        self._idle: deque[asyncio.Future[None]] = deque()
        """One future for each of the `width` loops that wait for an item."""

    async def run(self) -> None:
        """Commit until cancelled, `width` commits at a time. Items that wait then are committed
        if it is called again.
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(self._width):
                group.create_task(self._work())

    async def submit(self, item: Item) -> Answer:
        """Return the item's answer after its commit. Raises Unavailable if too many items wait.

        The item of a cancelled caller is written all the same.
        """
        if self._waiting_count >= self._max_waiting:
            raise Unavailable("Too many requests are waiting for the database")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        key = object() if self._key_of is None else self._key_of(item)
        self._waiting_count += 1
        if key in self._waiting:
            self._waiting[key].append(_Pending(item, key, future))
        else:
            self._waiting[key] = deque([_Pending(item, key, future)])
            self._ready.append(key)
            self._wake_one()
        return await future

    async def _work(self) -> None:
        while True:
            while not self._ready:
                idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle
            batch: list[_Pending[Item, Answer]] = []
            while self._ready and len(batch) < self._max_batch:
                batch.append(self._waiting[self._ready.popleft()].popleft())
            self._waiting_count -= len(batch)
            await self._commit(batch)

    def _wake_one(self) -> None:
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():  # else `run` was cancelled
                idle.set_result(None)
                return

    async def _commit(self, batch: Sequence[_Pending[Item, Answer]]) -> None:
        answers: Sequence[Answer | Exception | Retry]
        try:
            with telemetry.timed(telemetry.GROUP_COMMIT_SECONDS.labels(self._kind)):
                answers = await self._write([pending.item for pending in batch])
        except DatabaseUnavailable as error:
            answers = [error] * len(batch)
        except Exception as error:  # noqa: BLE001 - the caller of the one item gets it
            if len(batch) > 1:
                await self._commit_singly(deque(batch))
                return
            answers = [error]
        except BaseException:
            self._cut_off(batch)
            raise
        telemetry.GROUP_COMMIT_ITEMS.labels(self._kind).observe(len(batch))
        self._settle(batch, answers)

    async def _commit_singly(self, left: deque[_Pending[Item, Answer]]) -> None:
        try:
            while left:
                await self._commit([left.popleft()])
        except BaseException:
            self._cut_off(left)
            raise

    def _cut_off(self, batch: Collection[_Pending[Item, Answer]]) -> None:
        """Answer items whose outcome is unknown, as `run` ends; it may be called again."""
        self._settle(batch, [Unavailable("The write was cut off: try again")] * len(batch))

    def _settle(
        self,
        batch: Collection[_Pending[Item, Answer]],
        answers: Sequence[Answer | Exception | Retry],
    ) -> None:
        retried = [
            pending
            for pending, answer in zip(batch, answers, strict=True)
            if not self._answer(pending, answer)
        ]
        self._make_ready(batch, retried)

    def _make_ready(
        self,
        written: Collection[_Pending[Item, Answer]],
        retried: Sequence[_Pending[Item, Answer]],
    ) -> None:
        """Let the next items of the keys be written; retried ones in their own order, before all
        others.
        """
        for pending in retried:
            self._waiting[pending.key].appendleft(pending)
        self._waiting_count += len(retried)
        first = {pending.key for pending in retried}
        self._ready.extendleft(pending.key for pending in reversed(retried))
        for pending in written:
            if not self._waiting[pending.key]:
                del self._waiting[pending.key]
                continue
            if pending.key not in first:
                self._ready.append(pending.key)
            self._wake_one()

    def _answer(self, pending: _Pending[Item, Answer], answer: Answer | Exception | Retry) -> bool:
        """Answer the caller; return False if the item is to be retried instead."""
        if not isinstance(answer, Retry):
            complete(pending.future, answer)
            return True
        now = loop_time()
        if pending.give_up_at is None:
            pending.give_up_at = now + self._max_retry_seconds
        if now < pending.give_up_at:
            return False
        complete(pending.future, Unavailable("Concurrent requests kept winning: try again"))
        return True
