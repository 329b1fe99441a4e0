"""Connections to allowed addresses only.

A host's name is resolved once, and every address of it must be allowed: the connection goes to one
of these addresses and to no other, even if the name resolves to another address a moment later. The
address is checked again when its socket is made, which covers an IP address in a URL, and once more
as the connection's peer, before the first byte of the request.
"""

import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from ltzd.concurrency.bounded_connector import BoundedConnector

HostResolver = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a host's name. Raises OSError."""


@cache
def trust() -> ssl.SSLContext:
    """This machine's certificate authorities. Cached: reading them takes a tenth of a second."""
    return ssl.create_default_context()


class ForbiddenAddressError(OSError):
    """An OSError, since aiohttp expects one of a resolver and of a socket."""


class GuardedConnector(BoundedConnector):
    """Without a limit of connections, so that those to one host never delay those to another.

    A connection is used once.
    """

    def __init__(
        self, resolve_host: HostResolver, is_allowed: Callable[[str], bool], max_bytes: int
    ) -> None:
        super().__init__(
            max_bytes,
            tls=trust(),
            resolver=_GuardedResolver(resolve_host, is_allowed),
            use_dns_cache=False,
            socket_factory=partial(guarded_socket, is_allowed),
            force_close=True,
            limit=0,
        )
        self._is_allowed = is_allowed

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[aiohttp.tracing.Trace],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        transport = connection.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        if peer is None or not self._is_allowed(str(peer[0])):
            connection.close()
            raise ForbiddenAddressError("the connection leads to an address that is not allowed")
        return connection


def guarded_socket(
    is_allowed: Callable[[str], bool], target: aiohttp.AddrInfoType
) -> socket.socket:
    """A socket for a connection to the target. Raises ForbiddenAddressError."""
    family, kind, protocol, _, address = target
    if not is_allowed(str(address[0])):
        raise ForbiddenAddressError("the address is not allowed")
    return socket.socket(family, kind, protocol)


async def allowed_addresses(
    host: str, resolve_host: HostResolver, is_allowed: Callable[[str], bool]
) -> list[str]:
    """The host's addresses. Raises OSError, and ForbiddenAddressError if any is not allowed."""
    try:
        addresses = list(dict.fromkeys(await resolve_host(host)))
    except UnicodeError as error:  # a label that DNS cannot hold
        raise OSError("no such name") from error
    # One forbidden address refuses the name: else its owner could wait until the others fail.
    if not addresses or not all(map(is_allowed, addresses)):
        raise ForbiddenAddressError("an address of the host is not allowed")
    return addresses


class _GuardedResolver(AbstractResolver):
    def __init__(self, resolve_host: HostResolver, is_allowed: Callable[[str], bool]) -> None:
        self._resolve_host = resolve_host
        self._is_allowed = is_allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await allowed_addresses(host, self._resolve_host, self._is_allowed)
        return [_resolved(host, address, port) for address in addresses]

    async def close(self) -> None:
        pass


def _resolved(host: str, address: str, port: int) -> ResolveResult:
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
        "proto": 0,
        "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    }
