"""Looks up TXT records with dnspython, which `dns_txt` imports at the first look-up."""

import asyncio
from collections.abc import Sequence
from typing import Any

import dns.asyncresolver
import dns.exception
import dns.message
import dns.name
import dns.nameserver
import dns.query
import dns.rdatatype
import dns.resolver
from dns.rdtypes.ANY.TXT import TXT

from ltzd.errors import DnsUnavailable

MAX_RECORDS = 64
MAX_RECORD_BYTES = 2_048
"""A longer record is not ours and is left out."""
MAX_ANSWER_BYTES = 6 * 1024
"""Anybody may name a domain with as many records as DNS allows. dnspython would decode their 64 KiB
for half a second, in which the event loop stands still."""


class TxtLookups:
    def __init__(self, nameservers: Sequence[str], port: int, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._resolver = _resolver(nameservers, port, timeout_seconds)

    def is_name(self, text: str) -> bool:
        try:
            dns.name.from_text(text)
        except dns.exception.DNSException:
            return False
        return True

    async def texts(self, name: str) -> list[str]:
        """As `TxtResolver.resolve`, without a bound of look-ups in flight."""
        if self._resolver is None:
            raise DnsUnavailable("this machine has no resolvers; set dns.nameservers")
        try:
            # The library checks its own limit between attempts only.
            async with asyncio.timeout(self._timeout_seconds):
                answer = await self._resolver.resolve(
                    dns.name.from_text(name),
                    dns.rdatatype.TXT,
                    raise_on_no_answer=False,
                    search=False,
                )
        except (dns.resolver.NXDOMAIN, dns.resolver.YXDOMAIN):
            return []
        except (dns.exception.DNSException, OSError, TimeoutError) as error:
            raise DnsUnavailable(f"no resolver answered: {type(error).__name__}") from error
        return _texts([record for record in answer.rrset or () if isinstance(record, TXT)])


class AnswerTooLongError(dns.exception.FormError):
    """A FormError, after which dnspython asks the next nameserver."""


class BoundedNameserver(dns.nameserver.Do53Nameserver):
    """A nameserver whose answers over TCP are read up to MAX_ANSWER_BYTES.

    A datagram is short: dnspython asks for 1,232 bytes at most.
    """

    async def async_query(
        self,
        request: dns.message.QueryMessage,
        timeout: float,
        source: str | None,
        source_port: int,
        max_size: bool,
        *options: Any,
        **more_options: Any,
    ) -> dns.message.Message:
        if not max_size:
            return await super().async_query(
                request, timeout, source, source_port, max_size, *options, **more_options
            )
        async with asyncio.timeout(timeout):
            answer = dns.message.from_wire(await self._answer_by_tcp(request))
        if not request.is_response(answer):
            raise dns.query.BadResponse
        return answer

    async def _answer_by_tcp(self, request: dns.message.QueryMessage) -> bytes:
        """Raises AnswerTooLongError, OSError, EOFError and TimeoutError."""
        reader, writer = await asyncio.open_connection(self.address, self.port)
        try:
            writer.write(request.to_wire(prepend_length=True))
            length = int.from_bytes(await reader.readexactly(2))
            if length > MAX_ANSWER_BYTES:
                raise AnswerTooLongError
            return await reader.readexactly(length)
        finally:
            writer.close()


def _resolver(
    nameservers: Sequence[str], port: int, timeout_seconds: float
) -> dns.asyncresolver.Resolver | None:
    """None if no resolver is named and the machine has none."""
    try:
        resolver = dns.asyncresolver.Resolver(configure=not nameservers)
    except dns.resolver.NoResolverConfiguration:
        return None
    if nameservers:
        resolver.nameservers = list(nameservers)
        resolver.port = port
    resolver.nameservers = [
        BoundedNameserver(str(address), resolver.port) for address in resolver.nameservers
    ]
    resolver.lifetime = timeout_seconds
    # Leaves time to ask every nameserver, and a single one twice.
    resolver.timeout = timeout_seconds / (len(resolver.nameservers) + 1)
    return resolver


def _texts(records: list[TXT]) -> list[str]:
    texts = [b"".join(record.strings) for record in records]
    short = sorted(text for text in texts if len(text) <= MAX_RECORD_BYTES)
    return [text.decode(errors="replace") for text in short[:MAX_RECORDS]]
