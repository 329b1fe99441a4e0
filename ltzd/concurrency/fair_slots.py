"""Bounds the work at one time, in turns of the parties that ask for it.

Behind a semaphore a party waits for everything that another one has asked for before. Here a free
slot goes to the party that holds fewest, so that a newcomer waits for one slot and no line.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

Party = TypeVar("Party", bound=Hashable)


class FairSlots(Generic[Party]):
    def __init__(self, most: int) -> None:
        self._free = most
        self._held: Counter[Party] = Counter()
        self._waiting: dict[Party, deque[asyncio.Future[None]]] = {}
        """The party whose last turn is the longest ago comes first."""

    @asynccontextmanager
    async def slot(self, party: Party) -> AsyncIterator[None]:
        """Hold a slot during the block. Callers of one party get theirs in order."""
        if self._free:
            self._take(party)
        else:
            await self._wait(party)
        try:
            yield
        finally:
            self._give_back(party)

    def _take(self, party: Party) -> None:
        self._free -= 1
        self._held[party] += 1

    async def _wait(self, party: Party) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # cancelled just after its turn had come
                self._give_back(party)
            raise

    def _give_back(self, party: Party) -> None:
        self._free += 1
        self._held[party] -= 1
        if not self._held[party]:
            del self._held[party]
        while self._free and self._waiting:
            self._give_turn(min(self._waiting, key=self._held.__getitem__))

    def _give_turn(self, party: Party) -> None:
        waiting = self._waiting.pop(party)
        while waiting and waiting[0].done():  # its caller has gone
            waiting.popleft()
        if not waiting:
            return
        turn = waiting.popleft()
        if waiting:
            self._waiting[party] = waiting  # behind the other parties
        self._take(party)
        turn.set_result(None)
