"""Fixed windows in this process's memory, for as long as Redis is away or not configured.

The `limits` library's own memory storage looks through all its keys at every hit and has no bound;
here a hit costs the same however many windows there are.
"""

from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic

from ltzd.cache.windows import WindowCount
from ltzd.concurrency.clock import Clock

MAX_WINDOWS = 50_000
"""Of each length; some 20 MB. Whoever has more addresses than this makes us forget the oldest."""

_SWEPT_PER_HIT = 2


@dataclass(slots=True)
class _Window:
    ends_at: float
    count: int = 0


class MemoryWindows:
    """Windows of one length end in the order in which they began, so each length has its table.

    The lengths are a closed set of the code's.
    """

    def __init__(self, clock: Clock = monotonic, max_windows: int = MAX_WINDOWS) -> None:
        self._clock = clock
        self._most_windows = max_windows
        self._tables: dict[int, OrderedDict[bytes, _Window]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    def hit(self, name: bytes, seconds: int) -> WindowCount:
        now = self._clock()
        table = self._tables.setdefault(seconds, OrderedDict())
        _sweep(table, now)
        window = table.get(name)
        if window is None or window.ends_at <= now:
            window = self._begun(table, name, now + seconds)
        window.count += 1
        return WindowCount(window.count, window.ends_at - now)

    def _begun(self, table: OrderedDict[bytes, _Window], name: bytes, ends_at: float) -> _Window:
        table.pop(name, None)
        if len(table) >= self._most_windows:
            table.popitem(last=False)
        window = table[name] = _Window(ends_at)
        return window


def _sweep(table: OrderedDict[bytes, _Window], now: float) -> None:
    """Two for each that may be added: the table shrinks, and no hit pays for all of them."""
    for _ in range(_SWEPT_PER_HIT):
        if not table or next(iter(table.values())).ends_at > now:
            return
        table.popitem(last=False)
