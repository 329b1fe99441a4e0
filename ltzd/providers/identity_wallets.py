"""Which wallets belong to a user of the identity provider, remembered for a while.

Raises IdentityUnavailable when neither the provider nor a fresh enough memory can tell.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cachetools import LRUCache

from ltzd.errors import IdentityUnavailable
from ltzd.providers.flights import Flights
from ltzd.providers.identity_answers import is_subject, wallets_in
from ltzd.providers.identity_calls import IdentityCalls, IdentityPolicy, refusal_in
from ltzd.values import Address

FRESH_SECONDS = 60.0
"""A wallet that its user unlinks counts so much longer."""
KEPT_SECONDS = 3600.0
"""And so much longer while the provider is away: as long as the user's token lives."""
LOOK_AGAIN_SECONDS = 3.0
"""For a wallet that is not among the known ones."""
FAILED_PAUSE_SECONDS = 15.0
"""After a failure, where the known ones will do: a slow provider costs its users' time, too."""
MOST_USERS = 20_000
"""Some 10 MB."""


@dataclass(slots=True)
class _Known:
    wallets: tuple[Address, ...]
    read_at: float
    failed_at: float = float("-inf")

    def tells(self, wanted: Address | None, now: float) -> bool:
        age = now - self.read_at
        is_answer = wanted is None or wanted in self.wallets
        return age < (FRESH_SECONDS if is_answer else LOOK_AGAIN_SECONDS)

    def will_do(self, wanted: Address | None, now: float) -> bool:
        """If the provider cannot be asked. A wallet that we do not know may be a new one."""
        return now - self.read_at < KEPT_SECONDS and (wanted is None or wanted in self.wallets)


class WalletBook:
    def __init__(
        self, policy: IdentityPolicy, calls: IdentityCalls, ticks: Callable[[], float]
    ) -> None:
        self._calls = calls
        self._ticks = ticks
        self._flights: Flights[str, tuple[Address, ...]] = Flights(
            "identity wallets", policy.max_waiting
        )
        self._known: LRUCache[str, _Known] = LRUCache(MOST_USERS)

    async def close(self) -> None:
        await self._flights.close()

    async def of(self, subject: str, wanted: Address | None) -> tuple[Address, ...]:
        if not is_subject(subject):
            return ()
        known, now = self._known.get(subject), self._ticks()
        if known is None:
            return await self._asked(subject)
        if known.tells(wanted, now):
            return known.wallets
        will_do = known.will_do(wanted, now)
        pause = FAILED_PAUSE_SECONDS if will_do else LOOK_AGAIN_SECONDS
        try:
            if now < known.failed_at + pause:
                raise IdentityUnavailable("The identity provider has just failed")
            return await self._asked(subject)
        except IdentityUnavailable:
            if will_do:
                return known.wallets
            raise

    async def _asked(self, subject: str) -> tuple[Address, ...]:
        return await self._flights.share(subject, lambda: self._read(subject))

    async def _read(self, subject: str) -> tuple[Address, ...]:
        # When we asked, not when we heard: what was linked between may be missing.
        asked_at = self._ticks()
        try:
            wallets = await self._told(subject)
        except IdentityUnavailable:
            if (known := self._known.get(subject)) is not None:
                known.failed_at = self._ticks()
            raise
        self._known[subject] = _Known(wallets, asked_at)
        return wallets

    async def _told(self, subject: str) -> tuple[Address, ...]:
        async with self._calls.question() as deadline:
            reply = await self._calls.ask("GET", f"/v1/users/{subject}", deadline=deadline)
            if reply.status == 404:
                return ()
            if not reply.is_ok:
                raise refusal_in(reply)
            return wallets_in(reply, subject)
