"""The tests' own clock: what freezes a test does not let its time limits run out."""

import asyncio
import time

import pytest


def freeze(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_freeze_is_no_time() -> None:
    loop = asyncio.get_running_loop()
    late = loop.call_later(0.3, lambda: None)
    begun, by_the_machine = time.monotonic(), time.perf_counter()
    freeze(0.5)
    await asyncio.sleep(0)
    assert time.perf_counter() - by_the_machine >= 0.5
    assert time.monotonic() - begun < 0.3
    assert loop.time() < late.when()
    late.cancel()


async def test_waiting_is_time() -> None:
    begun, by_the_machine = time.monotonic(), time.perf_counter()
    await asyncio.sleep(0.3)
    assert time.monotonic() - begun >= 0.3
    assert time.perf_counter() - by_the_machine >= 0.29, "the clock runs ahead of the machine's"


@pytest.mark.usefixtures("stalls_count")
async def test_a_freeze_counts_where_a_test_asks_for_it() -> None:
    begun = time.monotonic()
    freeze(0.2)
    assert time.monotonic() - begun >= 0.2
