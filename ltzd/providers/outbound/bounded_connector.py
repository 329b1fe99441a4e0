"""Connections on which an outside service may send a bounded number of bytes for each request.

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

    `options` are those of aiohttp's connector.
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
        is_too_much = len(data) > self._bytes_left
        allowed = data[: self._bytes_left]
        self._bytes_left -= len(allowed)
        super().data_received(allowed)
        if is_too_much and self.transport is not None:
            self.transport.abort()
