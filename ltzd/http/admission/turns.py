"""The order of the queue: the caller of `take` chooses the party; a party's callers take turns."""

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Party(Generic[Item]):
    __slots__ = ("callers", "count")

    def __init__(self) -> None:
        self.callers: dict[str, deque[Item]] = {}
        """In the order of their next turns."""
        self.count = 0


class Turns(Generic[Item]):
    """Items that wait, by party and caller. A caller's own items stay in their order."""

    def __init__(self) -> None:
        self._parties: dict[str, _Party[Item]] = {}
        self.count = 0
        """As `len`, which costs more than all other work on an empty queue."""

    def __len__(self) -> int:
        return self.count

    def parties(self) -> Iterable[str]:
        """The parties with items."""
        return self._parties

    def waiting_of(self, party: str) -> int:
        waiting = self._parties.get(party)
        return 0 if waiting is None else waiting.count

    def longest(self) -> str:
        """The party with the most items. Raises ValueError if nothing waits."""
        return max(self._parties, key=self.waiting_of)

    def add(self, party: str, caller: str, item: Item) -> None:
        waiting = self._parties.get(party)
        if waiting is None:
            waiting = self._parties[party] = _Party()
        items = waiting.callers.get(caller)
        if items is None:
            items = waiting.callers[caller] = deque()
        items.append(item)
        waiting.count += 1
        self.count += 1

    def take(self, party: str) -> Item:
        """Remove the oldest item of the caller whose turn it is. Raises KeyError."""
        waiting = self._parties[party]
        caller = next(iter(waiting.callers))
        items = waiting.callers.pop(caller)
        item = items.popleft()
        if items:
            waiting.callers[caller] = items  # behind the party's other callers
        self._counted_out(party, waiting)
        return item

    def drop(self, party: str) -> Item:
        """Remove the newest item of the caller with the most. Raises KeyError."""
        waiting = self._parties[party]
        caller = max(waiting.callers, key=lambda name: len(waiting.callers[name]))
        items = waiting.callers[caller]
        item = items.pop()
        if not items:
            del waiting.callers[caller]
        self._counted_out(party, waiting)
        return item

    def remove(self, party: str, caller: str, item: Item) -> bool:
        """Remove this item; returns False if it does not wait any more."""
        waiting = self._parties.get(party)
        items = None if waiting is None else waiting.callers.get(caller)
        if waiting is None or items is None or item not in items:
            return False
        items.remove(item)
        if not items:
            del waiting.callers[caller]
        self._counted_out(party, waiting)
        return True

    def items(self) -> list[tuple[str, str, Item]]:
        """Every party, caller and item."""
        return [
            (party, caller, item)
            for party, waiting in self._parties.items()
            for caller, items in waiting.callers.items()
            for item in items
        ]

    def _counted_out(self, party: str, waiting: _Party[Item]) -> None:
        waiting.count -= 1
        self.count -= 1
        if not waiting.count:
            del self._parties[party]
