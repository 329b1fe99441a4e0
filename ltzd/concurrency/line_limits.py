"""Bounds log lines that callers cause: a flood of them would fill the disk and hide the others."""

import msgspec

from ltzd.concurrency.clock import Clock, loop_time

_MOST = 20
_SECONDS = 1.0


class _Window(msgspec.Struct):
    ends_at: float = 0.0
    lines: int = 0
    left_out: int = 0


class LineLimits:
    """At most 20 lines of each kind in a second. Kinds are constants of the program."""

    def __init__(self, clock: Clock = loop_time) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def take(self, kind: str) -> int | None:
        """Return how many lines were left out just before this one, or None to leave it out."""
        window = self._windows.setdefault(kind, _Window())
        now = self._clock()
        if now >= window.ends_at:
            window.ends_at, window.lines = now + _SECONDS, 0
        if window.lines >= _MOST:
            window.left_out += 1
            return None
        window.lines += 1
        left_out, window.left_out = window.left_out, 0
        return left_out
