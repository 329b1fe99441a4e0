"""A late answer is asked for once more, and the first answer counts."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ltzd.concurrency.second_asks import asked_twice
from ltzd.errors import NodeUnavailable, Refused

LATE = 0.01


class Server:
    """Answers each call as scripted: with a value, an error, or never."""

    def __init__(self, *answers: Callable[[], Coroutine[Any, Any, str]]) -> None:
        self.calls = 0
        self.cancelled = 0
        self._answers = answers

    async def ask(self) -> str:
        self.calls += 1
        try:
            return await self._answers[self.calls - 1]()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def now() -> str:
    return "now"


async def never() -> str:
    await asyncio.Event().wait()
    return "never"


async def late() -> str:
    await asyncio.sleep(5 * LATE)
    return "late"


async def failure() -> str:
    raise NodeUnavailable("the call fails")


async def late_failure() -> str:
    await asyncio.sleep(5 * LATE)
    raise NodeUnavailable("the late call fails")


async def refusal() -> str:
    raise Refused("no")


async def test_a_quick_answer_is_asked_for_once() -> None:
    server = Server(now)
    assert await asked_twice(server.ask, LATE) == "now"
    assert server.calls == 1


async def test_the_second_call_answers_for_one_that_hangs() -> None:
    server = Server(never, now)
    assert await asked_twice(server.ask, LATE) == "now"
    await asyncio.sleep(0)
    assert (server.calls, server.cancelled) == (2, 1)


async def test_a_late_answer_counts_if_it_is_the_first() -> None:
    server = Server(late, never)
    assert await asked_twice(server.ask, LATE) == "late"
    await asyncio.sleep(0)
    assert (server.calls, server.cancelled) == (2, 1)


@pytest.mark.parametrize("second", [late, now])
async def test_a_failure_beside_an_answer_does_not_count(
    second: Callable[[], Coroutine[Any, Any, str]],
) -> None:
    server = Server(late_failure, second)
    assert await asked_twice(server.ask, LATE) == (await second())


async def test_a_quick_failure_is_not_repeated() -> None:
    server = Server(failure)
    with pytest.raises(NodeUnavailable, match="the call fails"):
        await asked_twice(server.ask, LATE)
    assert server.calls == 1


async def test_a_refusal_is_an_answer() -> None:
    with pytest.raises(Refused):
        await asked_twice(Server(never, refusal).ask, LATE)


async def test_two_failures_are_one() -> None:
    server = Server(late_failure, late_failure)
    with pytest.raises(NodeUnavailable, match="late call"):
        await asked_twice(server.ask, LATE)


async def test_a_cancelled_caller_cancels_both() -> None:
    server = Server(never, never)
    caller = asyncio.create_task(asked_twice(server.ask, LATE))
    await asyncio.sleep(5 * LATE)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await asyncio.sleep(0)
    assert (server.calls, server.cancelled) == (2, 2)
