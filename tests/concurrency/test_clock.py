"""The default clock is the event loops' own."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from ltzd.concurrency.clock import loop_time


@pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_the_clock_and_the_running_loop_tell_the_same_time(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def between_two_turns() -> tuple[float, float, float]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        before = loop.time()
        now = loop_time()
        await asyncio.sleep(0.01)
        return before, now, loop.time()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        before, now, after = runner.run(between_two_turns())

    assert before <= now <= after
