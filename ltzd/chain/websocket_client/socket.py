"""A WebSocket to one node, whose messages are read in small steps.

aiohttp hands over all messages that have arrived, and answers their pings, without a turn of the
event loop in between: a quarter of a megabyte of empty ones would hold it for a second or two.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal, TypeAlias

import aiohttp

from ltzd.concurrency.bounded_connector import BoundedConnector

_HEAD_BYTES: Final = 64 * 1024
_A_TURN: Final = 32
"""Messages between two turns of the event loop."""

_Socket: TypeAlias = aiohttp.ClientWebSocketResponse[Literal[False]]
"""Texts are not decoded: msgspec takes bytes."""


class NodeSocket:
    def __init__(self, socket: _Socket) -> None:
        self._socket = socket
        self._read = 0

    @property
    def is_too_long(self) -> bool:
        """Whether the socket has ended because of a message of more than `max_bytes`."""
        return self._socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG

    async def send(self, text: str) -> None:
        await self._socket.send_str(text)

    async def receive(self) -> bytes | None:
        """The next message of text or bytes, or None at the end of the socket."""
        while True:
            self._read += 1
            if self._read % _A_TURN == 0:
                await asyncio.sleep(0)
            message = await self._socket.receive()
            match message.type:
                case aiohttp.WSMsgType.TEXT | aiohttp.WSMsgType.BINARY:
                    data: bytes = message.data
                    return data
                case aiohttp.WSMsgType.PING:
                    await self._socket.pong(message.data)
                case aiohttp.WSMsgType.PONG:
                    pass
                case _:
                    return None


@asynccontextmanager
async def open_socket(
    url: str, *, connect_seconds: float, ping_seconds: float, max_bytes: int
) -> AsyncIterator[NodeSocket]:
    """A socket to the node, open for the length of the block.

    A quiet socket is pinged, and a message of more than `max_bytes` ends it. Raises TimeoutError,
    ValueError for a URL that is none, OSError and aiohttp's errors, in the block as well.
    """
    connector = BoundedConnector(_HEAD_BYTES)
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trace_configs=[_without_redirects()],
    ) as session:
        async with asyncio.timeout(connect_seconds):
            socket = await session.ws_connect(
                url,
                heartbeat=ping_seconds,
                max_msg_size=max_bytes,
                autoping=False,
                decode_text=False,
            )
        try:
            yield NodeSocket(socket)
        finally:
            # First the connection: else aiohttp reads what it brings until the node's close frame.
            await connector.close()
            await socket.close()


def _without_redirects() -> aiohttp.TraceConfig:
    """Redirects are not followed: they might lead to another chain's node."""

    async def refuse(*_: object) -> None:
        raise aiohttp.ClientConnectionError("redirected")

    config = aiohttp.TraceConfig()
    config.on_request_redirect.append(refuse)
    return config
