"""Hedged requests: a request that is late is sent again, and the first answer counts.

Only for requests that may be made twice. A server may answer all other requests within a
millisecond while one waits behind slow work: anvil, for example, leaves a request with the thread
that collects the receipts of a large block.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ltzd.errors import Unavailable

Answer = TypeVar("Answer")

LATE_SECONDS = 0.25
"""A request is late after this time. Nodes answer most requests within milliseconds."""


async def hedged(ask: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """Return the first answer to one call of `ask`, or to two if the first call is late.

    The other call is cancelled. An error counts as an answer and is raised, except that Unavailable
    is raised only if no other call is under way.
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
