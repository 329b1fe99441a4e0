"""A loop that fails begins again after a growing pause, and ends when it is cancelled."""

import asyncio
from collections.abc import Callable

import asyncpg
import pytest
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.concurrency.kept_loops import keep_running
from tests.support.clocks import ManualClock
from tests.support.rows.core import running
from tests.support.waiting import until


class FailingLoop:
    """Fails with the next of `errors`, each after `seconds`; then it runs until it is cancelled."""

    def __init__(self, *errors: Callable[[], Exception], seconds: float = 0.0) -> None:
        self.clock = ManualClock()
        self.pauses: list[float] = []
        self.is_ended = False
        self._errors = list(errors)
        self._seconds = seconds

    async def run(self) -> None:
        self.clock.now += self._seconds
        if self._errors:
            error = self._errors.pop(0)
            raise error()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_ended = True

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.now += seconds

    async def has_run(self) -> bool:
        return not self._errors

    async def kept(self, name: str) -> None:
        await keep_running(name, self.run, sleep=self.sleep, clock=self.clock)


def refusal() -> Exception:
    refused: Exception = asyncpg.UndefinedColumnError("column of Ann does not exist")
    return refused


def group() -> Exception:
    return ExceptionGroup("unhandled", [ExceptionGroup("unhandled", [ValueError("odd")])])


async def test_a_failed_loop_begins_again_after_pauses_that_grow() -> None:
    loop = FailingLoop(*[refusal] * 6)
    counted = telemetry.LOOP_FAILURES.labels("grows")._value.get
    before = counted()
    async with running(loop.kept("grows")):
        await until(loop.has_run)
    assert loop.pauses == [1, 2, 4, 8, 10, 10]
    assert counted() - before == 6
    assert loop.is_ended


async def test_a_loop_that_ran_for_long_waits_shortly() -> None:
    loop = FailingLoop(*[refusal] * 3, seconds=61)
    async with running(loop.kept("long")):
        await until(loop.has_run)
    assert loop.pauses == [1, 1, 1]


async def test_an_error_is_logged_once_a_minute_without_the_row() -> None:
    loop = FailingLoop(refusal, refusal, group, *[refusal] * 9)
    with capture_logs() as lines:
        async with running(loop.kept("told")):
            await until(loop.has_run)
    assert [(line["event"], line["loop"], line["error"]) for line in lines] == [
        ("loop.failed", "told", "UndefinedColumnError 42703"),
        ("loop.failed", "told", "ValueError: odd"),
        ("loop.failed", "told", "UndefinedColumnError 42703"),
        ("loop.failed", "told", "UndefinedColumnError 42703"),
    ]
    assert "in run" in lines[0]["trace"]


async def test_a_loop_that_returns_has_ended() -> None:
    """As migrations that are done."""
    runs: list[int] = []

    async def run_once() -> None:
        runs.append(1)

    await asyncio.wait_for(keep_running("done", run_once), 10)
    assert runs == [1]


async def test_a_cancelled_loop_does_not_begin_again() -> None:
    runs = 0

    async def fails_when_cancelled() -> None:
        nonlocal runs
        runs += 1
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while it ends")

    task = asyncio.create_task(keep_running("cancelled", fails_when_cancelled))

    async def has_begun() -> bool:
        return runs == 1

    await until(has_begun)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert runs == 1
