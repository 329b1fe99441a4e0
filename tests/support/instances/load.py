"""Clients that post events of new users, also while the instance is killed and restarted."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import aiohttp

from tests.support.instances.instance import Answer, Instance

_PAUSE_SECONDS = 0.05


@dataclass
class Load:
    """The outcomes of posted events; `unknown` has those whose connection broke."""

    instance: Instance
    answers: dict[str, Answer] = field(default_factory=dict)
    """By e-mail address."""
    unknown: set[str] = field(default_factory=set)

    @property
    def accepted(self) -> list[Answer]:
        return [answer for answer in self.answers.values() if answer.status in {200, 202}]

    def statuses(self) -> set[int]:
        return {answer.status for answer in self.answers.values()}

    async def post(self, **changes: object) -> None:
        email = f"{uuid4().hex}@shop.example"
        try:
            self.answers[email] = await self.instance.post_event(email, **changes)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if not isinstance(error, aiohttp.ClientConnectorError):
                self.unknown.add(email)
            await asyncio.sleep(_PAUSE_SECONDS)


async def post_all(
    instance: Instance, emails: Iterable[str], at_once: int = 100, **changes: object
) -> list[Answer]:
    """Posts one event per address with limited concurrency; returns the answers in order.

    An event that is refused because something is busy or away is posted again.
    """
    gate = asyncio.Semaphore(at_once)

    async def post(email: str) -> Answer:
        async with gate:
            return await instance.taken_event(email, **changes)

    return await asyncio.gather(*map(post, emails))


@asynccontextmanager
async def a_load(
    instance: Instance, clients: int, *, pause_seconds: float = 0.0, **changes: object
) -> AsyncIterator[Load]:
    """Runs `clients` loops, which pause after each event; at the end each finishes its request."""
    load = Load(instance)
    stop = asyncio.Event()

    async def client() -> None:
        while not stop.is_set():
            await load.post(**changes)
            await asyncio.sleep(pause_seconds)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
        try:
            yield load
        finally:
            stop.set()
