"""The clock that deadlines, pauses and ages are measured with.

Code that measures time takes a `clock` parameter, so that a test can move time by itself.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]
"""Returns seconds since an arbitrary moment and never goes back.

A parameter called `wall_clock` returns Unix seconds instead, and may be set back.
"""


def loop_time() -> float:
    """The running event loop's time, which `asyncio.timeout_at` and `call_at` also measure with.

    Raises RuntimeError outside an event loop.
    """
    return asyncio.get_running_loop().time()
