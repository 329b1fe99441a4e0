"""Posts over HTTP/1.1 to allowed addresses, on connections that may stay open for the next post.

A brand's burst is thousands of posts, and aiohttp takes half of a webhook's time for its own
(decision 0046). aiohttp is the oracle of the tests, and failures have its names, which webhooks'
rows have always shown. Only the head of an answer is read: a connection is kept only if the answer
is complete with its head.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from socket import AF_INET, AF_INET6, IPPROTO_TCP, SOCK_STREAM, TCP_NODELAY, gaierror
from typing import Final

import aiohappyeyeballs
from yarl import URL

from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.request_connection import RequestConnection
from ltzd.providers.outbound import guarded_connector
from ltzd.providers.outbound.guarded_connector import (
    ForbiddenAddressError,
    HostResolver,
    allowed_addresses,
)
from ltzd.providers.outbound.heads import HeadReader
from ltzd.providers.outbound.http_client import ClientClosed, HttpResponse, RequestFailed
from ltzd.rules.domains.names import is_ip_address

_MOST_KEPT = 500
"""The most connections that are kept open unused, to all hosts together."""
_NEXT_ADDRESS_SECONDS: Final = 0.25
"""RFC 8305: the wait before the host's next address is tried beside the one before."""

_Origin = tuple[str, str, int]
_Connection = RequestConnection[HttpResponse]


class GuardedPosts:
    """`keep_open_seconds` is None for a connection of its own for each post."""

    def __init__(
        self,
        resolve_host: HostResolver,
        is_allowed: Callable[[str], bool],
        keep_open_seconds: float | None,
    ) -> None:
        self._resolve_host = resolve_host
        self._is_allowed = is_allowed
        self._keep_open_seconds = keep_open_seconds
        self._kept: dict[_Origin, list[_Connection]] = {}
        """Unused connections; that of each host that was used last comes last."""
        self._kept_count = 0
        self._busy: set[_Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def close(self) -> None:
        """Fail posts in flight; every later one raises ClientClosed."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in [*self._busy, *(each for kept in self._kept.values() for each in kept)]:
            connection.abort()
        self._kept.clear()

    async def post(self, url: URL, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """The answer's status and headers. Raises RequestFailed; the caller bounds the time.

        A host may close a kept connection in the moment in which the request is sent on it: then
        the request is sent again, on another connection.
        """
        origin = url.scheme, url.raw_host or "", url.port or 0
        request = _request(url, body, headers)
        while True:
            kept = self._take(origin)
            connection = kept or await self._connect(url)
            if self._is_closed:  # perhaps while it connected
                connection.abort()
                raise ClientClosed
            try:
                return await self._exchange(origin, connection, request)
            except ConnectionError as error:
                # Each pass uses up a kept connection, and a new one is not repeated.
                if kept is None:
                    raise RequestFailed("ServerDisconnectedError") from error

    async def _exchange(
        self, origin: _Origin, connection: _Connection, request: bytes
    ) -> HttpResponse:
        self._busy.add(connection)
        try:
            if not self._is_allowed(connection.peer):
                reason = "the connection leads to an address that is not allowed"
                raise RequestFailed("ClientConnectorError") from ForbiddenAddressError(reason)
            return await connection.exchange(request, HeadReader())
        except ValueError as error:
            raise RequestFailed("ClientResponseError") from error
        finally:
            self._busy.discard(connection)
            self._keep_or_close(origin, connection)

    # Connections

    def _take(self, origin: _Origin) -> _Connection | None:
        kept = self._kept.get(origin, [])
        while kept:
            connection = kept.pop()
            self._kept_count -= 1
            if connection.is_reusable:
                return connection
        return None

    def _keep_or_close(self, origin: _Origin, connection: _Connection) -> None:
        seconds = None if self._is_closed else self._keep_open_seconds
        if seconds is None or not connection.is_reusable or self._kept_count >= _MOST_KEPT:
            connection.abort()
            return
        self._kept.setdefault(origin, []).append(connection)
        self._kept_count += 1
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(seconds, self._close_old)

    def _close_old(self) -> None:
        """Close what has been unused for its time, and repeat when the next one has."""
        assert self._keep_open_seconds is not None, "something was kept"
        self._sweep = None
        oldest = loop_time() - self._keep_open_seconds
        for origin, kept in list(self._kept.items()):
            while kept and (kept[0].unused_since <= oldest or not kept[0].is_reusable):
                kept.pop(0).abort()
                self._kept_count -= 1
            if not kept:
                del self._kept[origin]
        if self._kept:
            next_end = min(kept[0].unused_since for kept in self._kept.values()) - oldest
            self._sweep = asyncio.get_running_loop().call_later(next_end, self._close_old)

    async def _connect(self, url: URL) -> _Connection:
        if self._is_closed:
            raise ClientClosed
        host = url.raw_host or ""
        try:
            return await self._connected(host, url.port or 0, is_tls=url.scheme == "https")
        except ssl.SSLCertVerificationError as error:
            raise RequestFailed("ClientConnectorCertificateError") from error
        except ssl.SSLError as error:
            raise RequestFailed("ClientConnectorSSLError") from error
        except gaierror as error:
            raise RequestFailed("ClientConnectorDNSError") from error
        except OSError as error:
            raise RequestFailed("ClientConnectorError") from error

    async def _connected(self, host: str, port: int, *, is_tls: bool) -> _Connection:
        """Raises OSError."""
        addresses = [host]
        if not is_ip_address(host):
            addresses = await allowed_addresses(host, self._resolve_host, self._is_allowed)
        socket = await aiohappyeyeballs.start_connection(
            [_address_info(address, port) for address in addresses],
            happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
            interleave=1,
            socket_factory=partial(guarded_connector.guarded_socket, self._is_allowed),
        )
        try:
            socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
            _, connection = await asyncio.get_running_loop().create_connection(
                _Connection,
                sock=socket,
                ssl=guarded_connector.trust() if is_tls else None,
                server_hostname=host.rstrip(".") if is_tls else None,
            )
        except BaseException:
            socket.close()
            raise
        return connection


def _address_info(
    address: str, port: int
) -> tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]:
    if ":" in address:
        return AF_INET6, SOCK_STREAM, IPPROTO_TCP, "", (address, port, 0, 0)
    return AF_INET, SOCK_STREAM, IPPROTO_TCP, "", (address, port)


def _request(url: URL, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"POST {url.raw_path_qs} HTTP/1.1",
        f"Host: {url.host_port_subcomponent}",
        *(f"{name}: {value}" for name, value in headers.items()),
        f"Content-Length: {len(body)}\r\n\r\n",
    ]
    return "\r\n".join(lines).encode("ascii") + body
