"""A late answer is asked for once more, and the first answer counts."""

import asyncio
from collections.abc import Awaitable

import pytest

from ltzd.concurrency import hedging
from ltzd.concurrency.hedging import hedged
from ltzd.errors import NodeUnavailable, Refused


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hedging, "LATE_SECONDS", 0.01)


class Server:
    """Answers each call as scripted: with a text, an error, or never.

    `late` answers come once a second call has begun.
    """

    def __init__(self, *answers: str | Exception | None, is_first_late: bool = False) -> None:
        self.calls = 0
        self.cancelled = 0
        self.has_second = asyncio.Event()
        self._answers = answers
        self._is_first_late = is_first_late

    async def ask(self) -> str:
        self.calls += 1
        place = self.calls - 1
        answer = self._answers[place]
        if place == 1:
            self.has_second.set()
        try:
            if answer is None:
                await asyncio.Event().wait()
            if place == 0 and self._is_first_late:
                await self.has_second.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(answer, Exception):
            raise answer
        return str(answer)


async def ended(answer: Awaitable[str]) -> str:
    """The answer; cancelled calls have ended by then."""
    try:
        return await answer
    finally:
        await asyncio.sleep(0)


async def test_a_quick_answer_is_asked_for_once() -> None:
    server = Server("first")
    assert await hedged(server.ask) == "first"
    assert server.calls == 1


async def test_the_second_call_answers_for_one_that_hangs() -> None:
    server = Server(None, "second")
    assert await ended(hedged(server.ask)) == "second"
    assert (server.calls, server.cancelled) == (2, 1)


async def test_a_late_answer_counts_if_it_is_the_first() -> None:
    server = Server("first", None, is_first_late=True)
    assert await ended(hedged(server.ask)) == "first"
    assert (server.calls, server.cancelled) == (2, 1)


async def test_a_failure_beside_an_answer_does_not_count() -> None:
    first_fails = Server(NodeUnavailable("away"), "second", is_first_late=True)
    assert await hedged(first_fails.ask) == "second"
    second_fails = Server("first", NodeUnavailable("away"), is_first_late=True)
    assert await hedged(second_fails.ask) == "first"


async def test_a_quick_failure_is_not_repeated() -> None:
    server = Server(NodeUnavailable("away"))
    with pytest.raises(NodeUnavailable):
        await hedged(server.ask)
    assert server.calls == 1


async def test_a_refusal_is_an_answer() -> None:
    server = Server(None, Refused("no"))
    with pytest.raises(Refused):
        await ended(hedged(server.ask))
    assert server.cancelled == 1


async def test_two_failures_are_one() -> None:
    away = NodeUnavailable("away")
    with pytest.raises(NodeUnavailable):
        await hedged(Server(away, away, is_first_late=True).ask)


async def test_a_cancelled_caller_cancels_both() -> None:
    server = Server(None, None)
    caller = asyncio.create_task(hedged(server.ask))
    await server.has_second.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(caller)
    assert (server.calls, server.cancelled) == (2, 2)
