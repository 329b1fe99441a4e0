"""A TCP proxy whose network can swallow all packets without closing a connection.

A client sees no error, and no answer. The packets arrive when the network is whole again, as
TCP repeats them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class SilentProxy:
    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._flows = _open_gate()
        self._answers = _open_gate()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sign: bytes | None = None
        self.port = 0

    def swallow(self) -> None:
        self._flows.clear()

    def swallow_present(self) -> None:
        """Swallows the packets of the present connections, and not of later ones."""
        self._flows.clear()
        self._flows = _open_gate()

    def swallow_once_asked(self, sign: bytes) -> None:
        """Swallows the packets of the present connections once a client sends this."""
        self._sign = sign

    def hold_answers(self) -> None:
        """Keeps back what the server says; requests still arrive."""
        self._answers.clear()

    def heal(self) -> None:
        self._flows.set()
        self._answers.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flows = self._flows
        await flows.wait()
        try:
            other_reader, other_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        ways = ((reader, other_writer, _open_gate()), (other_reader, writer, self._answers))
        for source, target, gate in ways:
            task = asyncio.create_task(self._forward(source, target, flows, gate))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        flows: asyncio.Event,
        gate: asyncio.Event,
    ) -> None:
        try:
            while data := await source.read(65_536):
                if self._sign is not None and self._sign in data:
                    self._sign = None
                    self.swallow_present()
                await flows.wait()
                await gate.wait()
                target.write(data)
                await target.drain()
            await flows.wait()
        except OSError:
            pass
        finally:
            target.close()

    def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


@asynccontextmanager
async def a_silent_proxy(url: str) -> AsyncIterator[tuple[SilentProxy, str]]:
    """The proxy of a PostgreSQL server, and the URL that leads through it."""
    parts = urlsplit(url)
    proxy = SilentProxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    credentials, _, _ = parts.netloc.rpartition("@")
    through = parts._replace(netloc=f"{credentials}@127.0.0.1:{proxy.port}").geturl()
    try:
        yield proxy, through
    finally:
        proxy.heal()
        server.close()
        proxy.end()
