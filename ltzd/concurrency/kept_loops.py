"""Keeps a loop of the process running: after an error it begins again, and the others go on.

A row that this version cannot read, or a statement that PostgreSQL refuses, ends the loop that has
met it. If it ended the process, requests and lanes would end with it, and again after each start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.concurrency.loggable_errors import first_cause, loggable, traceback_of
from ltzd.concurrency.own_task import in_own_task

log = structlog.get_logger()

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 10.0
_BETWEEN_LINES_SECONDS = 60.0
"""Between two lines about the same error; a loop that runs for longer has recovered."""

Loop = Callable[[], Coroutine[Any, Any, None]]


async def keep_running(
    name: str,
    loop: Loop,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Clock = loop_time,
) -> None:
    """Run `loop` until it returns, or until cancelled; `name` is for the log and the metric.

    The pause before a new run doubles while the runs are short.
    """
    pause, logged, logged_at = _FIRST_PAUSE_SECONDS, "", 0.0
    while True:
        begun_at = clock()
        try:
            await in_own_task(loop())
        except Exception as error:  # noqa: BLE001 - logged, and counted by a metric
            telemetry.LOOP_FAILURES.labels(name).inc()
            now, cause = clock(), first_cause(error)
            if now - begun_at > _BETWEEN_LINES_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            if loggable(cause) != logged or now - logged_at > _BETWEEN_LINES_SECONDS:
                logged, logged_at = loggable(cause), now
                log.error("loop.failed", loop=name, error=logged, trace=traceback_of(cause))
        else:
            return
        await sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
