"""A proxy of PostgreSQL that breaks a client's connection at its nth request: the process has died.

A request is what the client ends with Sync, a simple query or the end of a COPY. The death is
before the request reaches the server, or after the server has carried it out and before the reply
is read. All connections end together, and later ones are refused until `revive`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal
from urllib.parse import urlsplit

Moment = Literal["before", "after"]

_ENDS_OF_REQUESTS = b"SQc"
"""Sync, Query and CopyDone: the types of the client's messages that end a request."""
_SSL_REQUEST = 80_877_103
_READY, _COPY_IN = b"Z", b"G"


class MortalProxy:
    """`requests` counts those since `die_at`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._dies_at: int | None = None
        self._moment: Moment = "before"
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests = 0
        self.is_dead = False

    def die_at(self, request: int, moment: Moment) -> None:
        self._dies_at, self._moment, self.requests = request, moment, 0

    def lead_to(self, url: str) -> None:
        """Later connections lead to this server, as behind a balanced or renewed address."""
        parts = urlsplit(url)
        self._target = parts.hostname or "127.0.0.1", parts.port or 5432

    def revive(self) -> None:
        self._dies_at, self.is_dead = None, False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_dead:
            writer.close()
            return
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, server_writer}
        ends = _Replies(server_reader, writer)
        for task in (
            asyncio.create_task(self._requests(reader, server_writer, ends)),
            asyncio.create_task(ends.forward()),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _requests(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, replies: "_Replies"
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await _pass_startup(reader, server)
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
                if head[0] in _ENDS_OF_REQUESTS and self._dies_at is not None:
                    self.requests += 1
                    if self.requests == self._dies_at:
                        await self._die(head + body, server, replies)
                        return
                server.write(head + body)
        server.close()

    async def _die(self, message: bytes, server: asyncio.StreamWriter, replies: "_Replies") -> None:
        self.is_dead = True
        if self._moment == "after":
            carried_out = replies.hold()
            server.write(message)
            await carried_out.wait()
        self._break_connections()

    def _break_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def end(self) -> None:
        self._break_connections()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Replies:
    """The server's replies, which are held back from the moment of death on."""

    def __init__(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._server = server
        self._client = client
        self._is_held = False
        self._carried_out = asyncio.Event()

    def hold(self) -> asyncio.Event:
        """Returns what is set once the server is ready for the next request."""
        self._is_held = True
        return self._carried_out

    async def forward(self) -> None:
        with suppress(OSError):
            while data := await self._server.read(65_536):
                if not self._is_held:
                    self._client.write(data)
                elif data[-6:-5] == _READY or data[:1] == _COPY_IN:
                    self._carried_out.set()
        self._carried_out.set()
        self._client.close()


async def _pass_startup(reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
    """The first messages have no type; a client that asks for TLS sends two."""
    while True:
        length = await reader.readexactly(4)
        body = await reader.readexactly(int.from_bytes(length, "big") - 4)
        server.write(length + body)
        if int.from_bytes(body[:4], "big") != _SSL_REQUEST:
            return


@asynccontextmanager
async def a_mortal_proxy(url: str) -> AsyncIterator[tuple[MortalProxy, str]]:
    """The proxy of a PostgreSQL server, and the URL that leads through it."""
    parts = urlsplit(url)
    proxy = MortalProxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    credentials, _, _ = parts.netloc.rpartition("@")
    try:
        yield proxy, parts._replace(netloc=f"{credentials}@127.0.0.1:{port}").geturl()
    finally:
        server.close()
        await proxy.end()
