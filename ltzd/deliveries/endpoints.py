"""Bounds the deliveries in flight in this process: a few for each brand, many for all together.

A brand whose endpoint hangs thus takes no slots of the others. The bound for all is the number of
hanging requests that this process can afford. An endpoint that answers quickly has more than a few,
lent from half of all, until no webhook waits for it or is under way to it: the other half is always
left for the few of each brand.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from ltzd.rules.webhooks import FEW_SLOTS, DeliverySlots
from ltzd.values import Address

_AT_FIRST = DeliverySlots()


class EndpointSlots:
    """Free and used slots by brand.

    `max_at_once` bounds the deliveries that begin together: more would hold up the event loop.
    """

    def __init__(self, max_in_flight: int, max_at_once: int) -> None:
        self._max_in_flight = max_in_flight
        self._max_at_once = max_at_once
        self._in_flight: Counter[Address] = Counter()
        self._slots: dict[Address, DeliverySlots] = {}
        """Brands with other slots than at first: fewer or a pause after failures, or more."""
        self._may_have_more: set[Address] = set()

    @property
    def in_flight(self) -> int:
        return self._in_flight.total()

    def add_due(self, brands: Collection[Address]) -> None:
        """Note brands that have due webhooks."""
        self._may_have_more.update(brands)

    def free(self, now: datetime) -> dict[Address, int]:
        """Deliveries to begin now, by brand; the brand with the fewest in flight comes first."""
        left = min(self._max_at_once, self._max_in_flight - self.in_flight)
        lent = max(0, self._max_in_flight // 2 - self.in_flight)
        free: dict[Address, int] = {}
        for brand in sorted(self._may_have_more, key=self._in_flight.__getitem__):
            under_way = self._in_flight[brand]
            slots = self._slots.get(brand, _AT_FIRST).free(under_way, now)
            few = min(slots, max(0, FEW_SLOTS - under_way))
            count = min(few + min(slots - few, lent), left)
            if count > 0:
                free[brand] = count
                left -= count
                lent = max(0, lent - count)
        return free

    def note_claimed(self, wanted: Mapping[Address, int], claimed: Mapping[Address, int]) -> None:
        """A brand of which fewer webhooks were claimed than wanted has no more due."""
        for brand, count in wanted.items():
            if claimed.get(brand, 0) < count:
                self._may_have_more.discard(brand)

    def rest(self, brand: Address, until: datetime) -> None:
        """Begin no delivery to the brand before that time."""
        slots = self._slots.get(brand, _AT_FIRST)
        self._slots[brand] = replace(slots, rests_until=until)

    def begin(self, brand: Address) -> None:
        self._in_flight[brand] += 1

    def end(self, brand: Address) -> bool:
        """Return whether another delivery may begin in the freed slot at once."""
        self._in_flight[brand] -= 1
        if not self._in_flight[brand]:
            del self._in_flight[brand]
            has_more_slots = self._slots.get(brand, _AT_FIRST).limit > FEW_SLOTS
            if has_more_slots and brand not in self._may_have_more:
                del self._slots[brand]
        return brand in self._may_have_more or self.in_flight >= self._max_in_flight - 1

    def succeeded(self, brand: Address, took: timedelta) -> None:
        slots = self._slots.pop(brand, _AT_FIRST).after_success(took)
        if slots != _AT_FIRST:
            self._slots[brand] = slots

    def failed(
        self, brand: Address, status: int | None, retry_after: timedelta | None, now: datetime
    ) -> None:
        slots = self._slots.get(brand, _AT_FIRST)
        self._slots[brand] = slots.after_failure(status, retry_after, now)
