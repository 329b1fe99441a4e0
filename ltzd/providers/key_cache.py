"""Keys that sign users' tokens, cached so that a token's check needs no request.

The keys are read again in the background before they are an hour old, and sooner for an unknown key
id: an issuer that changes its keys looks like this from here. Look-ups for unknown ids are at least
ten seconds apart (the vendor's own clients wait ten minutes), so invented ids do not become
requests, and a user whose token has a new key is not refused for long. While the issuer is away the
cached keys stay valid, however old; a key that a newer set leaves out is invalid at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress

import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import Clock
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.concurrency.work_slots import released_when_slow
from ltzd.errors import IdentityUnavailable
from ltzd.providers.jwks import PublicKey

MAX_AGE_SECONDS = 3600.0
REFRESH_AGE_SECONDS = 2700.0
UNKNOWN_ID_PAUSE_SECONDS = 10.0
FIRST_FAILURE_PAUSE_SECONDS = 0.5
MAX_FAILURE_PAUSE_SECONDS = 10.0
"""Between two failed reads, each of which has repeats of its own."""

_NEVER = float("-inf")

_log = structlog.get_logger(__name__)


class KeyCache(ABC):
    """Keys by their `key_name`; a subclass reads the issuer's current key set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reads: SingleFlight[None, None] = SingleFlight(
            "identity keys", 1, IdentityUnavailable
        )
        self._keys: Mapping[str, PublicKey] = {}
        self._read_at = _NEVER
        self._reads_begun = 0
        self._last_read = 0
        self._unknown_at = _NEVER
        self._failures = 0
        self._failed_at = _NEVER

    @abstractmethod
    async def fetch_keys(self) -> Mapping[str, PublicKey]:
        """Raises IdentityUnavailable."""

    async def close(self) -> None:
        await self._reads.close()

    async def key(self, name: str) -> PublicKey | None:
        """Return None if the issuer has no such key.

        Raises IdentityUnavailable while the issuer's keys cannot be read.
        """
        begun = self._reads_begun
        age = self._clock() - self._read_at
        if age >= REFRESH_AGE_SECONDS:
            await self._refresh(age)
        if name not in self._keys:
            await self._find(name, begun)
        return self._keys.get(name)

    async def _refresh(self, age: float) -> None:
        if not self._keys:
            await self._read()
            return
        # In the background, except for the first caller after an hour without tokens.
        with suppress(IdentityUnavailable):
            if age < MAX_AGE_SECONDS or self._failures:
                self._start_read()
            else:
                await self._read()

    async def _find(self, name: str, begun: int) -> None:
        """Read until the key is there, or a read that began after the first `begun` lacks it."""
        while name not in self._keys and self._last_read <= begun:
            if not self._reads and not self._take_read():
                return
            await self._read()

    def _take_read(self) -> bool:
        """Take the one read for unknown keys of each pause; return whether the caller may read."""
        if self._failures:
            return True  # Failures have pauses of their own.
        now = self._clock()
        if now < self._unknown_at + UNKNOWN_ID_PAUSE_SECONDS:
            return False
        self._unknown_at = now
        return True

    async def _read(self) -> None:
        self._refuse_in_pause()
        with released_when_slow():
            await self._reads.call(None, self._fetch)

    def _start_read(self) -> None:
        self._refuse_in_pause()
        self._reads.begin(None, self._fetch)

    def _refuse_in_pause(self) -> None:
        growing = FIRST_FAILURE_PAUSE_SECONDS * 2 ** min(self._failures - 1, 10)
        pause = min(MAX_FAILURE_PAUSE_SECONDS, growing)
        if self._failures and not self._reads and self._clock() < self._failed_at + pause:
            raise IdentityUnavailable("The identity provider's keys cannot be read")

    async def _fetch(self) -> None:
        self._reads_begun += 1
        # The time of the request: a key that was added before the answer may be missing from it.
        read_at, number = self._clock(), self._reads_begun
        try:
            keys = await self.fetch_keys()
        except IdentityUnavailable:
            self._failures += 1
            self._failed_at = self._clock()
            raise
        if keys.keys() != self._keys.keys():
            _log.info("identity_keys_read", count=len(keys))
        self._keys, self._read_at, self._last_read = keys, read_at, number
        self._failures = 0
        telemetry.IDENTITY_KEYS_READ_AT.set_to_current_time()
