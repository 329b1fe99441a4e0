"""HTTP/1.1 to one node, over connections that stay open.

A lone relay makes two requests after a pause, when their code has left the processor's caches.
aiohttp takes 0.9 ms for each of them then, a large part of a relay's latency
(docs/benchmarks.md, `relays`). aiohttp is the oracle of the tests.
"""

import asyncio
import os
import ssl
from base64 import b64encode
from socket import IPPROTO_TCP, SOCK_STREAM, TCP_NODELAY, gaierror
from typing import Final

import aiohappyeyeballs
from yarl import URL

from ltzd import __version__
from ltzd.chain.http_client.answers import HttpAnswer, HttpAnswerReader
from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.request_connection import RequestConnection

_IDLE_SECONDS: Final = 15.0
"""A connection that was idle for longer is not used again: the node may be closing it."""
_NEXT_ADDRESS_SECONDS: Final = 0.25
"""RFC 8305: the wait before the node's next address is tried beside the one before."""


_Connection = RequestConnection[HttpAnswer]


class ConnectFailed(Exception):
    """No connection was made, so nothing was sent."""


class HttpClient:
    """The connections to the node of one URL.

    Each request takes an idle connection or opens one: the caller bounds the requests at once.
    """

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._url = URL(url)
        self._timeout_seconds = timeout_seconds
        self._head = _request_head(self._url)
        self._tls = _tls_context() if self._url.scheme == "https" else None
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    async def post(self, body: bytes, most: int) -> HttpAnswer:
        """Post JSON; return the answer, whatever its status, with a body of `most` bytes at most.

        No redirect is followed. Raises TimeoutError; ConnectFailed; ConnectionError if the
        connection ends before the answer does; AnswerTooLong; ValueError for an answer that is not
        HTTP. After all but ConnectFailed the node may have carried out the request.
        """
        async with asyncio.timeout(self._timeout_seconds):
            connection = self._idle_connection() or await self._connect()
            self._busy.add(connection)
            try:
                return await connection.exchange(
                    b"%s%d\r\n\r\n%s" % (self._head, len(body), body), HttpAnswerReader(most)
                )
            finally:
                self._busy.discard(connection)
                if connection.is_reusable:
                    self._idle.append(connection)
                else:
                    connection.abort()

    def close(self) -> None:
        """Close every connection. A request that is under way raises ConnectionError."""
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()

    def _idle_connection(self) -> _Connection | None:
        """Return the connection that was used last, so that those not needed grow old."""
        oldest = loop_time() - _IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.unused_since > oldest:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        host, port = self._url.raw_host or "", self._url.port or 0
        try:
            addresses = await loop.getaddrinfo(host, port, type=SOCK_STREAM)
            socket = await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS, interleave=1
            )
            try:
                socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
                name = None if self._tls is None else host
                _, connection = await loop.create_connection(
                    _Connection, sock=socket, ssl=self._tls, server_hostname=name
                )
            except BaseException:
                socket.close()
                raise
        except OSError as error:  # SSLError and gaierror, too
            raise ConnectFailed(_reason(error)) from error
        return connection


def _reason(error: OSError) -> str:
    """Return why there is no connection, without the node's address, which may hold a key."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return "it does not speak TLS as this machine does"
    if isinstance(error, gaierror):
        return "its host name is unknown"
    return "it cannot be reached" if error.errno is None else os.strerror(error.errno).lower()


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _request_head(url: URL) -> bytes:
    """Return the head of every request, up to the value of Content-Length."""
    lines = [
        f"POST {url.raw_path_qs} HTTP/1.1",
        f"Host: {url.host_port_subcomponent}",
        f"User-Agent: ltzd/{__version__}",
        "Accept: application/json",
        "Accept-Encoding: gzip, deflate",
        "Content-Type: application/json",
    ]
    if url.user is not None:
        credentials = f"{url.user}:{url.password or ''}".encode()
        lines.append(f"Authorization: Basic {b64encode(credentials).decode()}")
    return "\r\n".join([*lines, "Content-Length: "]).encode()
