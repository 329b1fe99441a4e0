"""Completes futures, also those whose waiters may have been cancelled meanwhile."""

import asyncio
from typing import TypeVar

Answer = TypeVar("Answer")


def done_future(answer: Answer) -> asyncio.Future[Answer]:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


def complete(future: asyncio.Future[Answer], answer: Answer | Exception) -> None:
    """Set the answer as the future's result, or raise it if it is an exception.

    A future that is done, because it was cancelled or timed out, stays as it is.
    """
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
