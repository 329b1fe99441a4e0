"""Runs work that may be cancelled in a task of its own, so that no cancellation is lost.

A task group that fails raises its error even if its task is cancelled meanwhile. A loop that begins
the work again after an error would go on for ever then, and its process would never end.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def in_own_task(work: Coroutine[Any, Any, Result]) -> Result:
    """Return or raise what `work` does.

    A cancelled caller cancels the work, and stays cancelled whatever the work raises. The work has
    ended when this function returns, unless the caller is cancelled a second time.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # Retrieved, so that asyncio does not report it as lost.
        raise
    return task.result()
