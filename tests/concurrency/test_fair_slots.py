"""Slots that parties take in turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ltzd.concurrency.fair_slots import FairSlots
from tests.support.waiting import until


class Crowd:
    """Callers that each hold a slot until `leave` lets the next one of them go."""

    def __init__(self, most: int) -> None:
        self._slots: FairSlots[str] = FairSlots(most)
        self._may_leave = asyncio.Semaphore(0)
        self.callers: list[str] = []
        self.served: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, party: str, count: int = 1) -> None:
        """Return once all of them hold a slot or wait for one."""
        expected = len(self.callers) + count
        self.tasks += [asyncio.create_task(self._hold(party)) for _ in range(count)]

        async def have_asked() -> bool:
            return len(self.callers) == expected

        await until(have_asked)

    async def leave(self, count: int = 1) -> None:
        """Return once other callers hold the slots of the callers that left."""
        expected = len(self.served) + count

        async def are_served() -> bool:
            return len(self.served) == expected

        for _ in range(count):
            self._may_leave.release()
        await until(are_served)

    async def end(self) -> None:
        for _ in self.tasks:
            self._may_leave.release()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _hold(self, party: str) -> None:
        self.callers.append(party)
        async with self._slots.slot(party):
            self.served.append(party)
            await self._may_leave.acquire()


@asynccontextmanager
async def a_crowd(most: int) -> AsyncIterator[Crowd]:
    crowd = Crowd(most)
    yield crowd
    await crowd.end()


async def test_no_more_slots_are_held_than_there_are() -> None:
    async with a_crowd(2) as crowd:
        await crowd.ask("flood", 5)
        assert crowd.served == ["flood"] * 2
        await crowd.leave()
        assert len(crowd.served) == 3


async def test_a_free_slot_goes_to_the_party_that_holds_fewest() -> None:
    async with a_crowd(4) as crowd:
        await crowd.ask("flood", 20)
        await crowd.ask("shop", 3)
        await crowd.leave(2)
        assert crowd.served[4:] == ["shop", "shop"]


async def test_parties_with_equally_many_slots_take_turns() -> None:
    async with a_crowd(1) as crowd:
        await crowd.ask("flood", 3)
        await crowd.ask("shop", 2)
        for _ in range(4):
            await crowd.leave()
        assert crowd.served[1:] == ["flood", "shop", "flood", "shop"]


async def test_a_caller_that_gives_up_takes_no_slot() -> None:
    async with a_crowd(1) as crowd:
        await crowd.ask("flood")
        await crowd.ask("shop", 2)
        crowd.tasks[1].cancel()
        await crowd.leave()
        assert crowd.served == ["flood", "shop"]


async def test_a_party_keeps_its_turn_if_the_first_of_its_callers_gives_up() -> None:
    async with a_crowd(1) as crowd:
        await crowd.ask("flood")
        await crowd.ask("shop", 2)
        await crowd.ask("flood", 2)
        crowd.tasks[1].cancel()
        await crowd.leave()
        assert crowd.served == ["flood", "shop"]


async def test_a_caller_that_gives_up_as_its_turn_comes_leaves_the_slot_to_the_next() -> None:
    slots: FairSlots[str] = FairSlots(1)
    callers: list[str] = []

    async def hold(name: str) -> str:
        callers.append(name)
        async with slots.slot("shop"):
            return name

    async def have_asked() -> bool:
        return len(callers) == 2

    async with slots.slot("flood"):
        first, second = (asyncio.create_task(hold(name)) for name in ("first", "second"))
        await until(have_asked)
    first.cancel()  # in the same turn of the event loop as the end of the block

    assert await second == "second"
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
    async with slots.slot("flood"):
        pass  # no slot is lost
