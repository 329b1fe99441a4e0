"""A TCP proxy with one address for several servers: a connection goes to the first that accepts it.

The proxy stands in for a floating address, or for the TCP part of a load balancer. With `is_fair`
each connection begins with another server.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress


class TcpFront:
    """`targets` are ports of this machine, and may be replaced at any time."""

    def __init__(self, targets: Sequence[int], *, is_fair: bool) -> None:
        self.targets = list(targets)
        self._is_fair = is_fair
        self._turns = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in self._in_order():
            try:
                server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            for source, target in ((reader, server_writer), (server_reader, writer)):
                task = asyncio.create_task(_forward(source, target))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            return
        writer.close()

    def _in_order(self) -> list[int]:
        first = next(self._turns) % len(self.targets) if self._is_fair else 0
        return self.targets[first:] + self.targets[:first]

    def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()


async def _forward(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()
    finally:
        target.close()


@asynccontextmanager
async def a_tcp_front(
    targets: Sequence[int], port: int = 0, *, is_fair: bool = False
) -> AsyncIterator[tuple[TcpFront, int]]:
    """The proxy and its port."""
    front = TcpFront(targets, is_fair=is_fair)
    server = await asyncio.start_server(front.serve, "127.0.0.1", port)
    try:
        yield front, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        front.end()
