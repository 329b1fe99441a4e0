"""Clients of one node that limits the rate of requests take turns, one request each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ltzd.chain.node.learned_limits import NodeLimits
from ltzd.chain.node.refusals import Refusal, RefusalKind
from ltzd.errors import NodeUnavailable
from tests.support.waiting import until

FAR = 60.0
TOO_MANY = "too many requests"


def limited() -> NodeLimits:
    """The limits of a node that has refused a call as one too many: a call a second at first."""
    limits = NodeLimits("n.example:443")
    refusal = Refusal(RefusalKind.RATE, retry_after_seconds=0.05)
    limits.refused_rate(refusal, TOO_MANY)
    for _ in range(200):
        limits.accepted(1, 100)
    return limits


class Crowd:
    """Requests of clients at one node, and the order in which they were sent."""

    def __init__(self, limits: NodeLimits) -> None:
        self._limits = limits
        self._queues: dict[str, asyncio.Lock] = {}
        self.sent: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def _send(self, client: str, seconds: float) -> None:
        queue = self._queues.setdefault(client, asyncio.Lock())
        await self._limits.wait_for_rate(1, self._limits.clock() + seconds, queue)
        self.sent.append(client)

    def begin(self, client: str, count: int, seconds: float = FAR) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self._send(client, seconds)) for _ in range(count)]
        self.tasks += tasks
        return tasks

    async def sent_at_least(self, count: int) -> None:
        async def are_sent() -> bool:
            return len(self.sent) >= count

        await until(are_sent)


@asynccontextmanager
async def a_crowd() -> AsyncIterator[Crowd]:
    crowd = Crowd(limited())
    try:
        yield crowd
    finally:
        for task in crowd.tasks:
            task.cancel()
        await asyncio.gather(*crowd.tasks, return_exceptions=True)


async def test_a_lanes_request_does_not_wait_for_all_that_http_has_queued() -> None:
    async with a_crowd() as crowd:
        crowd.begin("http", 500)
        await crowd.sent_at_least(1)
        before = len(crowd.sent)
        await asyncio.gather(*crowd.begin("operator", 1))
        assert crowd.sent.index("operator") <= before + 2


async def test_clients_take_turns_one_request_each() -> None:
    async with a_crowd() as crowd:
        crowd.begin("http", 100)
        crowd.begin("operator", 10)
        crowd.begin("indexer", 10)
        await crowd.sent_at_least(24)
        last = crowd.sent[6:24]
        assert {client: last.count(client) for client in set(last)} == {
            "http": 6,
            "operator": 6,
            "indexer": 6,
        }


async def test_a_turn_that_comes_too_late_is_unavailable_and_holds_up_nobody() -> None:
    async with a_crowd() as crowd:
        crowd.begin("http", 500)
        await crowd.sent_at_least(1)
        (hurried,) = crowd.begin("http", 1, seconds=0.2)
        with pytest.raises(NodeUnavailable, match=TOO_MANY) as raised:
            await hurried
        assert raised.value.kind == "rate_limited"
        await crowd.sent_at_least(len(crowd.sent) + 3)


async def test_a_cancelled_request_leaves_its_turn_to_the_next() -> None:
    async with a_crowd() as crowd:
        waiting = crowd.begin("http", 50)
        await crowd.sent_at_least(1)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.gather(*crowd.begin("operator", 1))


async def test_without_a_limit_nobody_waits() -> None:
    limits, queue = NodeLimits("n.example:443"), asyncio.Lock()
    async with asyncio.timeout(20), queue:
        for _ in range(1000):
            await limits.wait_for_rate(1, limits.clock(), queue)
