"""The clock of the tests: `time.monotonic` stands still while the machine is not there.

A build machine may freeze a test for a second or two. On the usual clock all time limits run out
meanwhile, also those of a client whose server, in the same process, had no chance to answer.

pytest loads this plugin before all other modules, so that ltzd and asyncio measure with this clock
alike. Other processes, among them the instances of ltzd and PostgreSQL, keep their own clocks.
"""

import selectors
import threading
import time
from collections.abc import Iterator
from typing import TypeAlias

import pytest

_TICK_SECONDS = 0.02
_MOST_SECONDS = 2 * _TICK_SECONDS
"""The most that passes on the clock between two looks at it."""

_machine_clock = time.monotonic
_Events: TypeAlias = list[tuple[selectors.SelectorKey, int]]


class SteadyClock:
    """Seconds that never go back; a stretch of more than 0.04 s without a look counts as 0.04 s."""

    def __init__(self) -> None:
        self.counts_stalls = False
        self._lock = threading.RLock()
        self._seen_at = self._seconds = _machine_clock()

    def __call__(self) -> float:
        with self._lock:
            now = _machine_clock()
            passed, self._seen_at = now - self._seen_at, now
            self._seconds += passed if self.counts_stalls else min(passed, _MOST_SECONDS)
            return self._seconds


class _ShortSelects(selectors.DefaultSelector):
    """Waits for a tick at most, so that an event loop that waits looks at the clock often."""

    def select(self, timeout: float | None = None) -> _Events:
        return super().select(_TICK_SECONDS if timeout is None else min(timeout, _TICK_SECONDS))


_clock = SteadyClock()
time.monotonic = _clock
selectors.DefaultSelector = _ShortSelects  # type: ignore[misc] # asyncio makes its selector of this name


@pytest.fixture
def stalls_count() -> Iterator[None]:
    """For tests that compare this process's clock with that of another one."""
    _clock()
    _clock.counts_stalls = True
    yield
    _clock()
    _clock.counts_stalls = False
