"""Asks a second time when an answer is late, for requests that may be made twice.

A server may answer everybody else within a millisecond while one request waits behind slow work:
anvil, for one, leaves it with the thread that collects the receipts of a large block.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ltzd.errors import Unavailable

Answer = TypeVar("Answer")


async def asked_twice(
    ask: Callable[[], Coroutine[Any, Any, Answer]], late_seconds: float
) -> Answer:
    """Return the first answer of one call, or of two if the first is late.

    A refusal is an answer, too, and is raised. Unavailable is raised only if no other call is under
    way. The other call is cancelled.
    """
    calls = {asyncio.ensure_future(ask())}
    try:
        done, _ = await asyncio.wait(calls, timeout=late_seconds)
        if not done:
            calls.add(asyncio.ensure_future(ask()))
        while True:
            done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            answered = next((call for call in done if not _has_failed(call)), None)
            if answered is not None or not waiting:
                return (answered or done.pop()).result()
            calls = waiting
    finally:
        for call in calls:
            call.cancel()


def _has_failed(call: asyncio.Future[Answer]) -> bool:
    return isinstance(call.exception(), Unavailable)
