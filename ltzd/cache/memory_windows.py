"""Fixed windows in this process's memory, used while Redis is unavailable or not configured.

The memory storage of the `limits` library scans all its keys at every hit and has no bound. Here a
hit costs the same however many windows there are.
"""

from collections import OrderedDict
from time import monotonic

import msgspec

from ltzd.cache.windows import WindowCount
from ltzd.concurrency.clock import Clock

MAX_WINDOWS = 50_000
"""Windows of one length, about 20 MB. Beyond this number the oldest window is dropped."""

_EXPIRED_PER_HIT = 2
"""Expired windows that one hit deletes: one hit adds one window, so the table shrinks."""


class _Window(msgspec.Struct):
    ends_at: float
    count: int = 0


class MemoryWindows:
    """Counts hits by name and length of the window.

    Windows of one length end in the order in which they began, so each length has a table of its
    own. The lengths are constants of the program, and therefore few.
    """

    def __init__(self, clock: Clock = monotonic, max_windows: int = MAX_WINDOWS) -> None:
        self._clock = clock
        self._max_windows = max_windows
        self._tables: dict[int, OrderedDict[bytes, _Window]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    def hit(self, name: bytes, seconds: int) -> WindowCount:
        """Count one hit in the window of this name, which lasts `seconds` from its first hit."""
        now = self._clock()
        table = self._tables.get(seconds)
        if table is None:
            table = self._tables[seconds] = OrderedDict()
        _delete_expired(table, now)
        window = table.get(name)
        if window is None or window.ends_at <= now:
            window = self._begin(table, name, now + seconds)
        window.count += 1
        return WindowCount(window.count, window.ends_at - now)

    def _begin(self, table: OrderedDict[bytes, _Window], name: bytes, ends_at: float) -> _Window:
        table.pop(name, None)
        if len(table) >= self._max_windows:
            table.popitem(last=False)
        window = table[name] = _Window(ends_at)
        return window


def _delete_expired(table: OrderedDict[bytes, _Window], now: float) -> None:
    for _ in range(_EXPIRED_PER_HIT):
        if not table or next(iter(table.values())).ends_at > now:
            return
        table.popitem(last=False)
