"""The one client of the domain name system: looks up the TXT records of a name.

A name that does not exist has no records. A resolver that does not answer, or answers with a
failure, raises DnsUnavailable and never means "no records". Nothing is cached here, so that a new
record counts at once, as far as the resolver's own cache allows. The library (`txt_lookups`) takes
2 MiB, and is imported at the first look-up.
"""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from ltzd import telemetry
from ltzd.errors import DnsUnavailable

if TYPE_CHECKING:
    from ltzd.providers.txt_lookups import TxtLookups


class DnsPolicy(msgspec.Struct, frozen=True):
    """Without nameservers, this machine's own resolvers are asked at their own ports."""

    nameservers: tuple[str, ...] = ()
    port: int = 53
    timeout_seconds: float = 5.0
    """Bounds one look-up, however many nameservers are asked."""
    max_waiting: int = 256
    """Look-ups in flight; a further one is refused."""


class TxtResolver:
    def __init__(self, policy: DnsPolicy) -> None:
        self._policy = policy
        self._lookups: TxtLookups | None = None
        self._waiting = 0

    async def resolve(self, name: str) -> list[str]:
        """Return the TXT records of `name`, sorted, the strings of each record joined.

        Raises DnsUnavailable.
        """
        lookups = await self._opened_lookups()
        if not lookups.is_name(name):
            return []  # longer than a name can be, so it has no records
        if self._waiting >= self._policy.max_waiting:
            raise DnsUnavailable("too many look-ups are under way")
        self._waiting += 1
        try:
            with telemetry.timed_provider("dns"):
                return await lookups.texts(name)
        finally:
            self._waiting -= 1

    async def _opened_lookups(self) -> "TxtLookups":
        if self._lookups is None:
            # In a thread: the import takes a tenth of a second, in which the event loop goes on.
            module = await asyncio.to_thread(import_module, "ltzd.providers.txt_lookups")
            policy = self._policy
            self._lookups = self._lookups or module.TxtLookups(
                policy.nameservers, policy.port, policy.timeout_seconds
            )
        return self._lookups
