"""A cached value: the number of fetches, and the callers that see a failure."""

import asyncio

import pytest

from ltzd.concurrency.cached_value import CachedValue
from ltzd.errors import NodeUnavailable
from tests.support.chain.mint_world import true
from tests.support.clocks import ManualClock
from tests.support.rows.core import running
from tests.support.waiting import until


class Source:
    def __init__(self) -> None:
        self.fetches = 0
        self.is_gone = False
        self.fact: list[int] | None = None

    async def fetch(self) -> list[int]:
        self.fetches += 1
        await asyncio.sleep(0)
        if self.is_gone:
            raise NodeUnavailable("gone")
        return [self.fetches] if self.fact is None else self.fact


async def test_callers_at_the_same_time_share_one_answer() -> None:
    source = Source()
    cached = CachedValue(source.fetch)
    assert await asyncio.gather(*[cached.get() for _ in range(5)]) == [[1]] * 5
    assert await cached.get() == [1]


async def test_an_expired_value_is_fetched_again() -> None:
    clock = ManualClock()
    cached = CachedValue(Source().fetch, clock)
    assert [await cached.get(), await cached.get()] == [[1], [1]]
    clock.now += 2.1
    assert await cached.get() == [2]


async def test_an_empty_value_is_not_cached() -> None:
    source = Source()
    source.fact = []
    cached = CachedValue(source.fetch)
    assert await cached.get() == []
    source.fact = [7]
    assert await cached.get() == [7]


async def test_a_cancelled_caller_does_not_cancel_the_answers_of_the_others() -> None:
    cached = CachedValue(Source().fetch)
    first, second = (asyncio.create_task(cached.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == [1]


async def test_a_prefetched_value_is_not_fetched_again() -> None:
    source = Source()
    cached = CachedValue(source.fetch)
    cached.prefetch()
    cached.prefetch()
    assert await cached.get() == [1]
    cached.prefetch()
    assert source.fetches == 1


async def test_a_failed_prefetch_raises_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source()
    source.is_gone = True
    cached = CachedValue(source.fetch)
    cached.prefetch()
    await until(lambda: true(source.fetches == 1))
    await asyncio.sleep(0)
    with pytest.raises(NodeUnavailable):
        await cached.get()
    source.is_gone = False
    assert await cached.get() == [3]
    assert not caplog.records


async def test_a_value_is_refreshed_in_the_background_while_it_is_used() -> None:
    clock, source = ManualClock(), Source()
    cached = CachedValue(source.fetch, clock)
    async with running(cached.keep_fresh(0.001)):
        await cached.get()
        await until(lambda: true(source.fetches >= 5))
        clock.now += 61
        await asyncio.sleep(0.01)  # a refresh that has begun ends
        before = source.fetches
        await asyncio.sleep(0.1)
        assert source.fetches == before, "nobody has used it for a minute"
        await cached.get()
        await until(lambda: true(source.fetches >= before + 5))
