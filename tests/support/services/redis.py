"""A real Redis for tests, which a test can suspend, stop and start again."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from ltzd.dev.services import processes, redis
from ltzd.dev.services.processes import Service
from tests.support.folders import a_data_directory


@dataclass(frozen=True)
class RedisServer:
    folder: Path
    url: str

    @property
    def service(self) -> Service:
        service = processes.find_running(self.folder, redis.NAME)
        assert service is not None
        return service

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        """A client of the test's own, to look at what is stored."""
        async with Redis.from_url(self.url) as client:
            yield client

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Suspends the server: it accepts connections and answers no command."""
        pid = self.service.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    async def stop(self) -> None:
        await processes.stop_all(self.folder)

    async def kill(self) -> None:
        service = self.service
        os.kill(service.pid, signal.SIGKILL)
        await processes.ended_within(service, 10.0)

    async def start(self) -> None:
        """Starts again on the same port, with the data that were stored."""
        port = processes.remembered_port(self.folder, redis.NAME)
        service = await processes.start(
            self.folder, redis.NAME, redis._command(self.folder), port=port or 0
        )
        await redis._ready(self.folder, service, self.url)


@asynccontextmanager
async def a_redis_server() -> AsyncIterator[RedisServer]:
    async with a_data_directory() as folder:
        yield RedisServer(folder, await redis.start(folder))


@asynccontextmanager
async def a_redis() -> AsyncIterator[str]:
    """Gives the URL of an empty server, which is removed at the end of the block."""
    async with a_redis_server() as server:
        yield server.url
