"""Who waits for a relay: for its end, or for his turn after it.

One look at the database answers everybody who waits. The lane may live in another process: a bell
says that something was mined, the rows say what.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeVar

import structlog

from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import DatabaseUnavailable
from ltzd.store.database import Pool, session
from ltzd.store.relayer import relays
from ltzd.store.relayer.relays import Progress
from ltzd.store.wakeups import RELAYED, WakeupHub
from ltzd.values import Address

log = structlog.get_logger()

Key = TypeVar("Key")
News = TypeVar("News")
Waiting = defaultdict[Key, set[asyncio.Future[News]]]


class RelayWaiters:
    def __init__(self, pool: Pool, wakeups: WakeupHub, clock: Clock = loop_time) -> None:
        self._pool = pool
        self._clock = clock
        self._wakeup = wakeups.subscribe(RELAYED)
        self._ends: Waiting[int, Progress | None] = defaultdict(set)
        self._turns: Waiting[Address, None] = defaultdict(set)

    async def end(self, relay: int, deadline: float) -> Progress | None:
        """A relay that is mined or never will be; None for one that is neither by `deadline`."""
        return await _wait(self._ends, relay, deadline - self._clock(), None)

    async def turn(self, user: Address, deadline: float) -> None:
        """Until nothing of his that takes turns is in flight, or it is `deadline`."""
        self.look()
        await _wait(self._turns, user, deadline - self._clock(), None)

    def look(self) -> None:
        """What somebody waits for may be there already."""
        self._wakeup.notify()

    async def run(self) -> None:
        while True:
            await self._wakeup.wait()
            if not self._ends and not self._turns:
                continue
            try:
                await self._look()
            except DatabaseUnavailable as error:
                log.warning("relays.database_unavailable", reason=error.message)

    async def _look(self) -> None:
        ends, users = list(self._ends), list(self._turns)
        async with session(self._pool) as connection:
            ended = await relays.settled(connection, ends) if ends else {}
            taken = await relays.turns_taken(connection, users) if users else set()
        _tell(self._ends, ended)
        _tell(self._turns, dict.fromkeys(user for user in users if user not in taken))


async def _wait(waiting: Waiting[Key, News], key: Key, seconds: float, too_late: News) -> News:
    """News of `key`, or `too_late` after so many seconds."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[News] = loop.create_future()
    waiting[key].add(future)
    timer = loop.call_later(seconds, _settle, future, too_late)
    try:
        return await future
    finally:
        timer.cancel()
        waiting[key].discard(future)
        if not waiting[key]:
            del waiting[key]


def _tell(waiting: Waiting[Key, News], news: Mapping[Key, News]) -> None:
    for key, found in news.items():
        for future in waiting.get(key, ()):
            _settle(future, found)


def _settle(future: asyncio.Future[News], news: News) -> None:
    if not future.done():
        future.set_result(news)
