"""Faults of the network between ltzd and its node, while the node keeps running.

The chain is a separate service, which ltzd reaches through a proxy that causes the faults.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio

from ltzd.dev.services.chain import Kind
from tests.support.chain.chains import a_chain
from tests.support.chain.node_proxy import NodeProxy, a_node_proxy
from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.instance import Answer, Instance, an_instance
from tests.support.services.postgres import Databases
from tests.support.waiting import until

OUTAGE_SECONDS = 10.0


@dataclass
class Remote:
    """An instance whose node is behind a proxy; the test itself asks the node directly."""

    instance: Instance
    proxy: NodeProxy
    rpc_url: str

    def __post_init__(self) -> None:
        self.instance.dev_json["rpcUrl"] = self.rpc_url

    async def start_again(self) -> None:
        await self.instance.start_again()
        self.instance.dev_json["rpcUrl"] = self.rpc_url

    async def post(self) -> Answer:
        return await self.instance.post_event(f"{uuid4().hex}@shop.example")

    async def post_many(self, count: int) -> list[Answer]:
        return list(await asyncio.gather(*(self.post() for _ in range(count))))

    async def settled(self, answers: list[Answer]) -> None:
        await all_minted(self.instance)
        await assert_books_agree(self.instance, answers)


class Remotes:
    def __init__(self, stack: AsyncExitStack, databases: Databases) -> None:
        self._stack = stack
        self._databases = databases
        self._by_kind: dict[Kind, Remote] = {}

    async def of(self, kind: Kind) -> Remote:
        if kind not in self._by_kind:
            enter = self._stack.enter_async_context
            database = await enter(self._databases.fresh())
            chain = await enter(a_chain(kind))
            proxy = await enter(a_node_proxy(chain.rpc_url))
            instance = await enter(an_instance("--rpc-url", proxy.url, "--database-url", database))
            self._by_kind[kind] = Remote(instance, proxy, chain.rpc_url)
        return self._by_kind[kind]


@pytest_asyncio.fixture(scope="module")
async def remotes(databases: Databases) -> AsyncIterator[Remotes]:
    async with AsyncExitStack() as stack:
        yield Remotes(stack, databases)


@pytest_asyncio.fixture(params=["tester", "anvil"])
async def remote(request: pytest.FixtureRequest, remotes: Remotes) -> Remote:
    return await remotes.of(request.param)


@pytest_asyncio.fixture
async def any_remote(remotes: Remotes) -> Remote:
    return await remotes.of("anvil")


async def test_ten_seconds_without_the_node_queue_events_and_lose_none(remotes: Remotes) -> None:
    """Runs on both chains at once: refused connections on one, gateway errors on the other."""
    tester, anvil = await remotes.of("tester"), await remotes.of("anvil")

    async def gateway_fails() -> None:
        tester.proxy.bad_gateway = True

    async def gateway_recovers() -> None:
        tester.proxy.bad_gateway = False

    async with asyncio.TaskGroup() as group:
        group.create_task(outage(anvil, anvil.proxy.cut, anvil.proxy.connect))
        group.create_task(outage(tester, gateway_fails, gateway_recovers))


async def outage(
    remote: Remote,
    begin: Callable[[], Awaitable[None]],
    end: Callable[[], Awaitable[None]],
) -> None:
    before = await remote.post_many(5)
    await begin()
    over = asyncio.get_running_loop().time() + OUTAGE_SECONDS
    during = await remote.post_many(10)
    for answer in during:
        assert (answer.status, answer.hash, answer.body["status"]) == (202, None, "queued")
        assert (answer.body["success"], answer.body["rewardAmount"]) == (True, 100)
    queued = await remote.instance.event(during[0].event_id)
    assert (queued["status"], queued["transactionHash"]) == ("queued", None)
    across = asyncio.create_task(remote.post_many(5))
    await asyncio.sleep(over - asyncio.get_running_loop().time())
    await end()

    answers = before + during + await across
    assert {answer.status for answer in answers} == {200, 202}
    await remote.settled(answers)
    assert (await remote.post()).status == 200
    for answer in during:
        assert (await remote.instance.event(answer.event_id))["status"] in {"minted", "final"}


async def test_a_lost_reply_to_a_publication_spends_no_second_nonce(remote: Remote) -> None:
    await remote.settled([])
    first = len(remote.proxy.published)
    remote.proxy.lose_publications = 3

    answers = await remote.post_many(3) + [await remote.post() for _ in range(3)]

    for answer in answers:
        answer.assert_timely()
    await remote.settled(answers)
    assert remote.proxy.lose_publications == 0
    await assert_each_nonce_has_one_content(remote, first)


async def test_after_a_lost_reply_a_pending_transaction_is_published_again(
    remote: Remote,
) -> None:
    await remote.settled([])
    first = len(remote.proxy.published)
    await remote.instance.rpc("evm_setAutomine", False)
    try:
        remote.proxy.lose_publications = 2
        answers = [await remote.post() for _ in range(2)]
        await remote.instance.rpc("evm_mine")
    finally:
        await remote.instance.rpc("evm_setAutomine", True)

    for answer in answers:
        answer.assert_timely()
    await remote.settled(answers)
    times = await assert_each_nonce_has_one_content(remote, first)
    assert max(times.values()) > 1, "the transactions of lost replies were not published again"


@pytest.mark.parametrize("held", ["request", "reply"])
async def test_a_kill_around_a_publication_mints_exactly_once(
    any_remote: Remote, held: Literal["request", "reply"]
) -> None:
    """The bytes are stored, but the killed ltzd does not know whether the node has them."""
    remote = any_remote
    await remote.settled([])
    first = len(remote.proxy.published)
    remote.proxy.hold, remote.proxy.held = held, []
    posting = asyncio.create_task(remote.post())

    async def is_held() -> bool:
        return bool(remote.proxy.held)

    await until(is_held)
    await remote.instance.kill9()
    with pytest.raises(aiohttp.ClientError):
        await posting
    remote.proxy.hold = ""
    await remote.start_again()

    await remote.settled([])
    stored = await remote.instance.ask("SELECT raw FROM attempts ORDER BY created_at DESC LIMIT 1")
    assert remote.proxy.held == ["0x" + stored.hex()]
    assert set(remote.proxy.published[first:]) == set(remote.proxy.held)


async def assert_each_nonce_has_one_content(remote: Remote, first: int) -> Counter[str]:
    """Checks that each nonce has one set of bytes; returns how often each was published."""
    times = Counter(remote.proxy.published[first:])
    stored = await remote.instance.ask("SELECT array_agg(raw) FROM attempts")
    assert {bytes.fromhex(raw[2:]) for raw in times} <= set(stored)
    assert await remote.instance.ask("SELECT count(*) FROM transactions") == len(stored)
    return times


async def test_a_slow_node_delays_answers_but_fails_none(any_remote: Remote) -> None:
    remote = any_remote
    remote.proxy.delay_seconds = 0.5
    try:
        answers = await remote.post_many(10)
    finally:
        remote.proxy.delay_seconds = 0.0
    for answer in answers:
        answer.assert_timely()
    await remote.settled(answers)


async def test_health_reports_a_lost_node_and_its_return(any_remote: Remote) -> None:
    remote = any_remote
    await remote.proxy.cut()

    async def shows(state: str) -> bool:
        url = f"{remote.instance.base_url}/service-api/health"
        async with remote.instance.http.get(url) as reply:
            assert reply.status == 200
            return bool((await reply.json())["services"]["blockchain"] == state)

    await until(lambda: shows("unavailable"))
    await remote.proxy.connect()
    await until(lambda: shows("connected"))
