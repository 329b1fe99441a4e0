"""The one client of the domain name system: looks up the TXT records of a name.

A name that does not exist has no records. A resolver that does not answer, or answers with a
failure, raises DnsUnavailable and never means "no records". Nothing is cached here, so that a new
record counts at once, as far as the resolver's own cache allows.
"""

import asyncio
from dataclasses import dataclass

import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver
from dns.rdtypes.ANY.TXT import TXT

from ltzd import telemetry
from ltzd.errors import DnsUnavailable

MAX_RECORDS = 64
MAX_RECORD_BYTES = 2_048
"""A longer record is not ours and is left out."""


@dataclass(frozen=True, slots=True)
class DnsPolicy:
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
        self._resolver = _resolver(policy)
        self._waiting = 0

    async def resolve(self, name: str) -> list[str]:
        """Returns the TXT records of `name`, sorted, the strings of each record joined.

        Raises DnsUnavailable.
        """
        try:
            question = dns.name.from_text(name)
        except dns.exception.DNSException:
            return []  # longer than a name can be, so it has no records
        if self._waiting >= self._policy.max_waiting:
            raise DnsUnavailable("too many look-ups are under way")
        self._waiting += 1
        try:
            with telemetry.timed_provider("dns"):
                return _texts(await self._ask(question))
        finally:
            self._waiting -= 1

    async def _ask(self, name: dns.name.Name) -> list[TXT]:
        if self._resolver is None:
            raise DnsUnavailable("this machine has no resolvers; set dns.nameservers")
        try:
            # The library checks its own limit between attempts only.
            async with asyncio.timeout(self._policy.timeout_seconds):
                answer = await self._resolver.resolve(
                    name, dns.rdatatype.TXT, raise_on_no_answer=False, search=False
                )
        except (dns.resolver.NXDOMAIN, dns.resolver.YXDOMAIN):
            return []
        except (dns.exception.DNSException, OSError, TimeoutError) as error:
            raise DnsUnavailable(f"no resolver answered: {type(error).__name__}") from error
        return [record for record in answer.rrset or () if isinstance(record, TXT)]


def _resolver(policy: DnsPolicy) -> dns.asyncresolver.Resolver | None:
    """None if the policy names no resolver and the machine has none."""
    try:
        resolver = dns.asyncresolver.Resolver(configure=not policy.nameservers)
    except dns.resolver.NoResolverConfiguration:
        return None
    if policy.nameservers:
        resolver.nameservers = list(policy.nameservers)
        resolver.port = policy.port
    resolver.lifetime = policy.timeout_seconds
    # Leaves time to ask every nameserver, and a single one twice.
    resolver.timeout = policy.timeout_seconds / (len(resolver.nameservers) + 1)
    return resolver


def _texts(records: list[TXT]) -> list[str]:
    texts = [b"".join(record.strings) for record in records]
    short = sorted(text for text in texts if len(text) <= MAX_RECORD_BYTES)
    return [text.decode(errors="replace") for text in short[:MAX_RECORDS]]
