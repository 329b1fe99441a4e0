"""Relay lanes of this process that sign a relay while it is admitted.

The relay is stored as sent, with its transaction, in one statement: the queue never holds it.
"""

from collections.abc import Sequence
from typing import Protocol

from ltzd.rules.relayer.admission import NewRelay
from ltzd.values import Address


class DirectLane(Protocol):
    @property
    def wallet(self) -> Address: ...

    @property
    def direct_slots(self) -> int:
        """How many relays the lane would sign at once; 0 while relays wait in the queue."""
        ...

    async def admit(self, relays: Sequence[NewRelay]) -> list[int | None]:
        """Store the first of these relays with their transactions; return the ids of their rows.

        The ids are fewer than the relays if the lane takes no more of them. An id is None for a
        relay that must be decided again. Raises DatabaseUnavailable: the relays may be stored.
        Raises LaneLost if the term is over: nothing is stored.
        """
        ...


class DirectLanes:
    def __init__(self) -> None:
        self._lanes: list[DirectLane] = []

    def add(self, lane: DirectLane) -> None:
        """Offer a lane to admissions until `remove`."""
        self._lanes.append(lane)

    def remove(self, lane: DirectLane) -> None:
        self._lanes.remove(lane)

    def choose(self) -> DirectLane | None:
        """The lane that would sign the most relays at once, or None if no lane would.

        Of equal lanes the one whose turn is the longest ago, so that idle wallets share the work.
        """
        lane = max(self._lanes, key=lambda each: each.direct_slots, default=None)
        if lane is None or lane.direct_slots == 0:
            return None
        self._lanes.remove(lane)
        self._lanes.append(lane)
        return lane
