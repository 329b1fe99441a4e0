"""Asks a second time when an answer is late, for requests that may be made twice.

A server may answer everybody else within a millisecond while one request waits behind slow work:
anvil, for one, leaves it with the thread that collects the receipts of a large block.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ltzd.errors import Unavailable

Answer = TypeVar("Answer")

LATE_SECONDS = 0.25
"""Of a node, which answers most requests within milliseconds."""


async def asked_twice(ask: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """Return the first answer of one call, or of two if the first is late.

    A refusal is an answer, too, and is raised. Unavailable is raised only if no other call is under
    way. The other call is cancelled.
    """
    calls = {asyncio.ensure_future(ask())}
    try:
        done, _ = await asyncio.wait(calls, timeout=LATE_SECONDS)
        if not done:
            calls.add(asyncio.ensure_future(ask()))
        while True:
            done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            answers = [call for call in done if not _has_failed(call)]
            if answers or not waiting:
                return (answers or list(done))[0].result()
            calls = waiting
    finally:
        for call in calls:
            call.cancel()


def _has_failed(call: asyncio.Future[Answer]) -> bool:
    return isinstance(call.exception(), Unavailable)
