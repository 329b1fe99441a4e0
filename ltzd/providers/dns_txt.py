"""The one client of the domain name system: which TXT records stand at a name.

A name that is not there has none. Whoever could not be asked, or answered that he cannot tell, has
said nothing: DnsUnavailable, never "none". Nothing is kept, so that a record counts at once, as far
as the resolver forgets.
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

MOST_RECORDS = 64
MOST_BYTES = 2_048
"""Of one record; a longer one is not ours."""


@dataclass(frozen=True, slots=True)
class DnsPolicy:
    """Without nameservers this machine's own resolvers are asked, at their own ports."""

    nameservers: tuple[str, ...] = ()
    port: int = 53
    timeout_seconds: float = 5.0
    """For one question, however many nameservers are asked."""
    max_waiting: int = 256
    """Questions under way at a time; another one is refused."""


class TxtResolver:
    def __init__(self, policy: DnsPolicy) -> None:
        self._policy = policy
        self._resolver = _resolver(policy)
        self._waiting = 0

    async def resolve(self, name: str) -> list[str]:
        """The records there, sorted, each one's strings joined. Raises DnsUnavailable."""
        try:
            question = dns.name.from_text(name)
        except dns.exception.DNSException:
            return []  # it is longer than a name can be, so nothing stands there
        if self._waiting >= self._policy.max_waiting:
            raise DnsUnavailable("too many questions are under way")
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
            # Its own limit is looked at between attempts only.
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
    """None if the machine has none and none are given."""
    try:
        resolver = dns.asyncresolver.Resolver(configure=not policy.nameservers)
    except dns.resolver.NoResolverConfiguration:
        return None
    if policy.nameservers:
        resolver.nameservers = list(policy.nameservers)
        resolver.port = policy.port
    resolver.lifetime = policy.timeout_seconds
    # So that each is asked, and the only one a second time.
    resolver.timeout = policy.timeout_seconds / (len(resolver.nameservers) + 1)
    return resolver


def _texts(records: list[TXT]) -> list[str]:
    found = [b"".join(record.strings) for record in records]
    short = sorted(text for text in found if len(text) <= MOST_BYTES)
    return [text.decode(errors="replace") for text in short[:MOST_RECORDS]]
