"""Counts a connection before its TLS handshake, and makes the handshake.

A TLS server of asyncio tells a protocol of its connection only after the handshake: clients that
never finish theirs would use up the process's files without being counted. So the server accepts
plain connections, and the handshake follows on the same socket once the connection is counted.
"""

import asyncio
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ltzd.http.connections.protocol import BoundedProtocol

_ENCRYPTED_BYTES = 16 * 1024
"""A connection from which nobody reads keeps so much, one record of TLS; the kernel keeps the rest.
The event loop's own limit is a quarter of a megabyte, for which it needs 0.7 MB."""


class TlsHandshakes(msgspec.Struct, frozen=True):
    """`handshake_seconds` bounds a handshake, `shutdown_seconds` the wait for the client's
    close_notify."""

    context: ssl.SSLContext
    handshake_seconds: float
    shutdown_seconds: float


class TlsProtocol(asyncio.Protocol):
    """The protocol of an accepted socket until its handshake, which BoundedProtocol follows."""

    def __init__(self, handshakes: TlsHandshakes, **options: Any) -> None:
        self._handshakes = handshakes
        self._connection = BoundedProtocol(**options)

    def connection_made(self, transport: Any) -> None:
        connection = self._connection
        if connection.count_once(transport):
            try:
                accepted = transport.get_extra_info("socket").dup()
            except OSError:  # the process has no file left
                connection.connection_lost(None)
            else:
                connection.handshake = asyncio.create_task(self._shake_hands(accepted))
                connection.handshake.add_done_callback(partial(self._ended, accepted))
        transport.abort()  # closes this descriptor, and the connection only if there is no other

    async def _shake_hands(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        transport: Any
        with suppress(OSError):  # SSLError, too
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._connection,
                accepted,
                ssl=self._handshakes.context,
                ssl_handshake_timeout=self._handshakes.handshake_seconds,
                ssl_shutdown_timeout=self._handshakes.shutdown_seconds,
            )
            transport.set_read_buffer_limits(high=_ENCRYPTED_BYTES)

    def _ended(self, accepted: socket.socket, _handshake: asyncio.Task[None]) -> None:
        """Forget a connection without a finished handshake, which may not even have begun."""
        if self._connection.conn_info is None:
            accepted.close()
            self._connection.connection_lost(None)
