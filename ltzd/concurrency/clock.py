"""The clock that deadlines, pauses and ages are measured with.

Code whose tests move time takes a `clock` parameter; other code calls `loop_time`.
"""

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]
"""Returns seconds since an arbitrary moment and never goes back.

A parameter called `wall_clock` returns Unix seconds instead, and may be set back.
"""


loop_time: Clock = time.monotonic
"""The time of event loops: `asyncio.timeout_at` and `call_at` measure with the same clock.

Reading the clock directly is several times as fast as `loop.time()`, and a relay reads it some
hundred times. uvloop's own time may be behind this clock by as long as the loop's present turn has
taken.
"""
