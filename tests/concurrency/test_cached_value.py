"""A fact that may be a second old: how often it is asked for, and who hears of a failure."""

import asyncio

import pytest

from ltzd.concurrency import cached_value as relay_fresh
from ltzd.concurrency.cached_value import CachedValue
from ltzd.errors import NodeUnavailable
from tests.support.chain.mint_world import true
from tests.support.waiting import until


class Source:
    def __init__(self) -> None:
        self.asked = 0
        self.is_gone = False
        self.fact: list[int] | None = None

    async def ask(self) -> list[int]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.is_gone:
            raise NodeUnavailable("gone")
        return [self.asked] if self.fact is None else self.fact


async def test_all_who_want_it_in_a_second_hear_one_answer() -> None:
    source = Source()
    fresh = CachedValue(source.ask)
    assert await asyncio.gather(*[fresh.now() for _ in range(5)]) == [[1]] * 5
    assert await fresh.now() == [1]


async def test_an_old_fact_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_fresh, "_FRESH_SECONDS", -1.0)
    fresh = CachedValue(Source().ask)
    assert [await fresh.now(), await fresh.now()] == [[1], [2]]


async def test_nothing_is_asked_for_again_at_once() -> None:
    source = Source()
    source.fact = []
    fresh = CachedValue(source.ask)
    assert await fresh.now() == []
    source.fact = [7]
    assert await fresh.now() == [7]


async def test_a_caller_who_goes_away_takes_nobodys_answer_along() -> None:
    fresh = CachedValue(Source().ask)
    first, second = (asyncio.create_task(fresh.now()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == [1]


async def test_what_was_prepared_is_not_asked_for_again() -> None:
    source = Source()
    fresh = CachedValue(source.ask)
    fresh.prepare()
    fresh.prepare()
    assert await fresh.now() == [1]
    fresh.prepare()
    assert source.asked == 1


async def test_a_preparation_that_failed_is_nobodys_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source()
    source.is_gone = True
    fresh = CachedValue(source.ask)
    fresh.prepare()
    await until(lambda: true(source.asked == 1))
    await asyncio.sleep(0)
    with pytest.raises(NodeUnavailable):
        await fresh.now()
    source.is_gone = False
    assert await fresh.now() == [3]
    assert not caplog.records
