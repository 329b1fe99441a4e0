"""The keys that sign users' tokens, kept so that a check needs no request.

They are read again in the background before they are an hour old, and sooner for a key id that is
not among them: that is how a change of keys looks from here. Such look-ups are at least ten seconds
apart (the vendor's own clients wait ten minutes), so that invented key ids do not become requests,
and a user whose token has a new key is not turned away for long. While the provider is away the
known keys go on counting, however old; a key that a newer set leaves out counts no more.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Generic, TypeVar
from urllib.parse import quote

import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from ltzd import telemetry
from ltzd.concurrency.clock import Clock
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.calls import IdentityCalls, IdentityPolicy, refusal_in
from ltzd.providers.key_sets import signing_keys_in

OLD_SECONDS = 3600.0
REFRESH_SECONDS = 2700.0
UNKNOWN_PAUSE_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
"""Between two failed look-ups, each of which has repeats of its own."""

Key = TypeVar("Key")

_NEVER = float("-inf")

_log = structlog.get_logger(__name__)


class KeyCache(ABC, Generic[Key]):
    """Keys by their id; `told` asks whoever makes the tokens for those of now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._flights: SingleFlight[None, None] = SingleFlight("identity keys", 1)
        self._keys: Mapping[str, Key] = {}
        self._asked_at = _NEVER
        self._flights_begun = 0
        self._told_by = 0
        self._unknown_at = _NEVER
        self._failures = 0
        self._failed_at = _NEVER

    @abstractmethod
    async def told(self) -> Mapping[str, Key]:
        """Raises IdentityUnavailable."""

    async def close(self) -> None:
        await self._flights.close()

    async def key(self, kid: str) -> Key | None:
        """None if the provider has no such key; raises IdentityUnavailable if it cannot tell."""
        begun = self._flights_begun
        age = self._clock() - self._asked_at
        if age >= REFRESH_SECONDS:
            await self._refresh(age)
        if kid not in self._keys:
            await self._look_for(kid, begun)
        return self._keys.get(kid)

    async def _refresh(self, age: float) -> None:
        if not self._keys:
            await self._read()
            return
        # Nobody waits for new keys, except whoever comes first after an hour without tokens.
        with suppress(IdentityUnavailable):
            if age < OLD_SECONDS or self._failures:
                self._take_off()
            else:
                await self._read()

    async def _look_for(self, kid: str, begun: int) -> None:
        """Until it is there, or a set of a later flight than those `begun` does not have it."""
        while kid not in self._keys and self._told_by <= begun:
            if not self._flights and not self._may_look():
                return
            await self._read()

    def _may_look(self) -> bool:
        if self._failures:
            return True  # Failures have pauses of their own.
        now = self._clock()
        if now < self._unknown_at + UNKNOWN_PAUSE_SECONDS:
            return False
        self._unknown_at = now
        return True

    async def _read(self) -> None:
        self._refuse_in_pause()
        await self._flights.share(None, self._fetch)

    def _take_off(self) -> None:
        self._refuse_in_pause()
        self._flights.take_off(None, self._fetch)

    def _refuse_in_pause(self) -> None:
        growing = FIRST_PAUSE_SECONDS * 2 ** min(self._failures - 1, 10)
        pause = min(LONGEST_PAUSE_SECONDS, growing)
        if self._failures and not self._flights and self._clock() < self._failed_at + pause:
            raise IdentityUnavailable("The identity provider's keys cannot be read")

    async def _fetch(self) -> None:
        self._flights_begun += 1
        asked_at, flight = self._clock(), self._flights_begun
        try:
            keys = await self.told()
        except IdentityUnavailable:
            self._failures += 1
            self._failed_at = self._clock()
            raise
        if keys.keys() != self._keys.keys():
            _log.info("identity_keys_read", keys=len(keys))
        self._keys, self._asked_at, self._told_by = keys, asked_at, flight
        self._failures = 0
        telemetry.IDENTITY_KEYS_READ_AT.set_to_current_time()


class IdentityKeyCache(KeyCache[EllipticCurvePublicKey]):
    """The vendor's, for one application."""

    def __init__(self, policy: IdentityPolicy, calls: IdentityCalls, clock: Clock) -> None:
        super().__init__(clock)
        self._path = f"/v1/apps/{quote(policy.app_id, safe='')}/jwks.json"
        self._calls = calls

    async def told(self) -> dict[str, EllipticCurvePublicKey]:
        async with self._calls.question() as deadline:
            reply = await self._calls.ask("GET", self._path, deadline=deadline)
            if not reply.is_ok:
                raise refusal_in(reply)
            return signing_keys_in(reply)
