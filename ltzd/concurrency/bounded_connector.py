"""aiohttp's connections to outside services, which bound what a service has the event loop do.

aiohttp bounds an answer's head and the caller its body, but a service may send any number of
interim answers before it, or of answers after it. aiohttp decodes at once all of them that have
arrived, which are megabytes, and keeps them in memory.
"""

import asyncio
import ssl
from functools import partial
from typing import Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler


class BoundedConnector(aiohttp.TCPConnector):
    """Ends a connection that brings more than `max_bytes` before its next request.

    A connection that has become a WebSocket may bring any number of bytes; it is read once in a
    turn of the event loop. `options` are those of aiohttp's connector.
    """

    def __init__(
        self, max_bytes: int, *, tls: ssl.SSLContext | bool = True, **options: Any
    ) -> None:
        super().__init__(ssl=tls, **options)
        make_handler = partial(_BoundedResponseHandler, self._loop, max_bytes)
        self._factory = cast("partial[ResponseHandler]", make_handler)


class _BoundedResponseHandler(ResponseHandler):
    def __init__(self, loop: asyncio.AbstractEventLoop, max_bytes: int) -> None:
        super().__init__(loop)
        self._max_bytes = self._bytes_left = max_bytes

    def set_response_params(self, **params: Any) -> None:
        """aiohttp calls this before each request of the connection."""
        self._bytes_left = self._max_bytes
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if self.upgraded:
            super().data_received(data)
            self._wait_a_turn()
            return
        is_too_much = len(data) > self._bytes_left
        allowed = data[: self._bytes_left]
        self._bytes_left -= len(allowed)
        super().data_received(allowed)
        if is_too_much and self.transport is not None:
            self.transport.abort()

    def _wait_a_turn(self) -> None:
        """uvloop reads 32 times in a turn, 8 MiB, which may be millions of empty frames."""
        if self.transport is not None:
            self.transport.pause_reading()
            self._loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        is_paused = self._reading_paused or self._buffer_paused
        if self.transport is not None and not is_paused:
            self.transport.resume_reading()
