"""How much of each brand is under way in this process, and how much more may be.

A brand has few places of its own, so that one that hangs takes none of the others'; all brands
together have many, as many as this process could afford to have hang.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from ltzd.rules.webhooks import DeliverySlots
from ltzd.values import Address

_UNHURT = DeliverySlots()


class EndpointSlots:
    def __init__(self, most_under_way: int, most_at_once: int) -> None:
        """`most_at_once` bounds what is begun together: more would hold up the event loop."""
        self._most_under_way = most_under_way
        self._most_at_once = most_at_once
        self._under_way: Counter[Address] = Counter()
        self._slots: dict[Address, DeliverySlots] = {}
        """Of brands that have not as many as others, or a rest."""
        self._may_have_more: set[Address] = set()

    @property
    def under_way(self) -> int:
        return self._under_way.total()

    def found(self, brands: Collection[Address]) -> None:
        """These have webhooks that are due."""
        self._may_have_more.update(brands)

    def free(self, now: datetime) -> dict[Address, int]:
        """How many to begin of each brand that may have some; who has least comes first."""
        left = min(self._most_at_once, self._most_under_way - self.under_way)
        free: dict[Address, int] = {}
        for brand in sorted(self._may_have_more, key=self._under_way.__getitem__):
            places = self._slots.get(brand, _UNHURT).free(self._under_way[brand], now)
            if min(places, left) > 0:
                free[brand] = min(places, left)
                left -= free[brand]
        return free

    def claimed(self, asked: Mapping[Address, int], got: Mapping[Address, int]) -> None:
        """Who gave less than was asked for has no more."""
        for brand, most in asked.items():
            if got.get(brand, 0) < most:
                self._may_have_more.discard(brand)

    def begin(self, brand: Address) -> None:
        self._under_way[brand] += 1

    def end(self, brand: Address) -> bool:
        """Answers whether the place can be of use at once."""
        self._under_way[brand] -= 1
        if not self._under_way[brand]:
            del self._under_way[brand]
        return brand in self._may_have_more or self.under_way >= self._most_under_way - 1

    def succeeded(self, brand: Address) -> None:
        slots = self._slots.pop(brand, _UNHURT).after_success()
        if slots != _UNHURT:
            self._slots[brand] = slots

    def failed(
        self, brand: Address, status: int | None, asked_for: timedelta | None, now: datetime
    ) -> None:
        slots = self._slots.get(brand, _UNHURT)
        self._slots[brand] = slots.after_failure(status, asked_for, now)
