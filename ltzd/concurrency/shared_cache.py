"""A cache that parties share, so that none of them can push out what the others need."""

from collections import OrderedDict
from typing import Generic, TypeVar

from ltzd.concurrency.clock import Clock

Value = TypeVar("Value")


class SharedCache(Generic[Value]):
    """Holds `most` entries, each for `seconds` since it was put.

    In a full cache the party with the most entries loses its oldest, and a party with more than an
    equal part its own.
    """

    def __init__(self, most: int, seconds: float, clock: Clock) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._parts: dict[str, OrderedDict[bytes, tuple[float, Value]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, party: str, key: bytes) -> Value | None:
        part = self._parts.get(party)
        entry = None if part is None else part.get(key)
        return entry[1] if entry is not None and entry[0] > self._clock() else None

    def put(self, party: str, key: bytes, value: Value) -> None:
        self.remove(party, key)
        self._remove_expired(party)
        while self._count >= self._most:
            loser = self._loser(party)
            self.remove(loser, next(iter(self._parts[loser])))
        part = self._parts.setdefault(party, OrderedDict())
        part[key] = self._clock() + self._seconds, value
        self._count += 1

    def remove(self, party: str, key: bytes) -> None:
        part = self._parts.get(party)
        if part is None or part.pop(key, None) is None:
            return
        self._count -= 1
        if not part:
            del self._parts[party]

    def _remove_expired(self, party: str) -> None:
        now = self._clock()
        while part := self._parts.get(party):
            key, (ends_at, _) = next(iter(part.items()))
            if ends_at > now:
                return
            self.remove(party, key)

    def _loser(self, party: str) -> str:
        own = self._parts.get(party, ())
        if len(own) * len(self._parts) > self._count:
            return party
        return max(self._parts, key=lambda each: len(self._parts[each]))
