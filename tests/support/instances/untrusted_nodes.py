"""An instance behind faulty nodes of one chain: it is started again with one, two or three of them.

The test itself reads and changes the chain directly, without any fault.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

import aiohttp
import pytest_asyncio
from eth_account import Account

from ltzd.dev.services.chain import Kind
from tests.support.chain.chains import a_chain
from tests.support.chain.faulty_node.node import FaultyNode, faulty_nodes
from tests.support.chain.tester import Rpc
from tests.support.instances.asks import Ask
from tests.support.instances.books import LTZ, all_minted, assert_books_agree
from tests.support.instances.instance import Answer, Instance, an_instance
from tests.support.instances.relayer import Relays, User, relays_of
from tests.support.relays.calls import call
from tests.support.relays.signing import transfer
from tests.support.services.postgres import Databases
from tests.support.waiting import until

CAMPAIGN_MINUTES = float(os.environ.get("LTZD_CAMPAIGN_MINUTES") or 0)
"""The length of `make campaign-nodes`, in which tests try more faults; 0 in `make test`."""

NODES = 3
_USERS = 4
_CALLS = 12
_OLDEST_STATE = 50
_HOUSE_LIMIT = 30
"""Relays of a user; the surface allows 35 an hour."""


class UntrustedNodes:
    """Every relay is a transfer of 1 LTZ from one of a few users to one friend."""

    def __init__(self, kind: Kind, nodes: list[FaultyNode], instance: Instance, url: str) -> None:
        self.kind = kind
        self.all_nodes = nodes
        self.nodes = nodes[:1]
        """The nodes that the instance knows now."""
        self.instance = instance
        self.answers: list[Answer] = []
        self.asks: list[Ask] = []
        self.friend = Account.create().address
        self._url = url
        self._relays: Relays | None = None
        self.users: list[User] = []
        self._database_options = list(instance.options)
        self._mining = asyncio.Lock()

    @property
    def relays(self) -> Relays:
        assert self._relays is not None
        return self._relays

    @property
    def rpc(self) -> Rpc:
        return self.instance.rpc

    async def begin(self, stack: AsyncExitStack, count: int) -> None:
        """Starts the instance with so many healthy nodes, and gives users 100 LTZ each."""
        await self.start_with(count)
        self._relays = await stack.enter_async_context(relays_of(self.instance))
        self.users = await self.relays.all_welcomed(_USERS)
        # Nodes that show an older state must know the users' balances, too.
        await self.rpc("anvil_mine", hex(_OLDEST_STATE))

    async def start_with(self, count: int) -> None:
        """Kills the instance if it runs, and starts it with so many nodes as they are now."""
        if self.instance.is_running:
            await self.instance.kill9()
        self.nodes = self.all_nodes[:count]
        await self._start()

    async def kill_and_start(self) -> None:
        await self.instance.kill9()
        await self._start()

    async def restart(self) -> None:
        """Starts the instance, which has been killed, with the nodes that it had."""
        await self._start()

    async def _start(self) -> None:
        """The second node is reached by WebSocket, the others by HTTP."""
        urls = [
            option
            for number, node in enumerate(self.nodes)
            for option in ("--rpc-url", node.ws_url if number == 1 else node.url)
        ]
        self.instance.options = self._database_options + urls
        await self.instance.start()
        self.instance.dev_json["rpcUrl"] = self._url

    async def transfer_on_chain(self, source: User, target: User) -> None:
        """Moves 1 LTZ-wei from a user to another without ltzd: a log and a transaction."""
        data = call("LTZ", "transfer", target.wallet, 1)
        await self.relays.chain.send(source.account, "LTZ", data)

    async def recover(self) -> None:
        """Ends all faults of all nodes."""
        for node in self.all_nodes:
            await node.recover()

    async def in_use(self) -> FaultyNode:
        """The node that most calls of the last moment went to."""
        before = [node.called.total() for node in self.nodes]

        async def busiest() -> FaultyNode | None:
            counts = [
                node.called.total() - count for node, count in zip(self.nodes, before, strict=True)
            ]
            return self.nodes[counts.index(max(counts))] if max(counts) >= _CALLS else None

        node = await until(busiest)
        assert node is not None
        return node

    async def trusts_all(self) -> bool:
        """Whether the instance runs and would use every node."""
        if not self.instance.is_running:
            return False
        return all(node["isUsable"] for node in (await self.instance.status())["nodes"])

    async def recovered(self, seconds: float = 60.0) -> None:
        """Waits until the instance uses every node again, or distrusts it for a lie."""

        async def all_fit() -> bool:
            nodes = (await self.instance.status())["nodes"]
            return all(node["isUsable"] or node["reason"] == "disagrees" for node in nodes)

        await until(all_fit, seconds)

    @asynccontextmanager
    async def blocks(self) -> AsyncIterator[None]:
        """Mines two blocks a second, beside those that transactions mine at once."""

        async def tick() -> None:
            while True:
                async with self._mining:
                    await self.rpc("evm_mine")
                await asyncio.sleep(0.5)

        task = asyncio.create_task(tick())
        try:
            yield
        finally:
            task.cancel()

    async def reorg(self, blocks: int) -> None:
        """Puts other blocks in the place of the newest ones.

        Nothing is mined meanwhile: anvil would leave a block whose parent is gone, and no node
        could be believed any more.
        """
        async with self._mining:
            await self.rpc("evm_setAutomine", False)
            await self.rpc("evm_mine")
            await self.rpc("anvil_reorg", blocks, [])
            await self.rpc("evm_setAutomine", True)

    async def post(self, count: int = 1) -> list[Answer]:
        emails = [f"{uuid4().hex}@shop.example" for _ in range(count)]
        answers = await asyncio.gather(*map(self.instance.post_event, emails))
        for answer in answers:
            assert answer.status in {200, 202}, answer.body
        self.answers += answers
        return answers

    async def post_through_kills(self) -> None:
        """As `post`, but a request may fail with the instance's connection."""
        try:
            await self.post()
        except (aiohttp.ClientError, OSError, TimeoutError):
            await asyncio.sleep(0.1)

    async def a_transfer(self) -> Ask:
        user = self.users[len(self.asks) % len(self.users)]
        assert len(self.asks) < _HOUSE_LIMIT * len(self.users), "the users' hourly limit is used up"
        data = await transfer(self.relays.chain, user.account, user.wallet, self.friend, LTZ)
        ask = Ask(user, "LTZ", data, uuid4().hex)
        self.asks.append(ask)
        return ask

    async def indexed(self, answer: Answer, seconds: float) -> None:
        """Waits until an event's mint is indexed; the instance must still run."""
        await self.instance.minted(answer.event_id, seconds)
        assert self.instance.is_running

    async def settle(self, seconds: float) -> None:
        """Waits for all outcomes; checks that books and chain agree."""
        await self.relays.forget_addresses()
        for ask in self.asks:
            assert await ask.outcome(self.relays, seconds), ask.answers[-1:]
        await all_minted(self.instance, seconds)
        await self._head_is_indexed(seconds)
        await assert_books_agree(self.instance, self.answers)
        assert await self.relays.chain.balance(self.friend) == len(self.asks) * LTZ
        assert len({ask.hash() for ask in self.asks}) == len(self.asks), "a relay without a hash"

    async def _head_is_indexed(self, seconds: float) -> None:
        """A relay's answer comes by its receipt, before its block is indexed."""
        number = await self.rpc.number()
        query = "SELECT bool_and(cursor_number >= $1) FROM chains"
        await until(lambda: self.instance.ask(query, number), seconds)


class Sites:
    """An instance for each kind of chain, started on first use."""

    def __init__(self, stack: AsyncExitStack, databases: Databases) -> None:
        self._stack = stack
        self._databases = databases
        self._by_kind: dict[Kind, UntrustedNodes] = {}

    async def of(self, kind: Kind, count: int) -> UntrustedNodes:
        """The instance behind so many healthy nodes, of which it knows nothing bad.

        The instance is started again only if it has other nodes or distrusts a node.
        """
        if kind not in self._by_kind:
            site = await self._stack.enter_async_context(
                untrusted_nodes(kind, self._databases, count)
            )
            self._by_kind[kind] = site
        site = self._by_kind[kind]
        await site.recover()
        if len(site.nodes) != count or not await site.trusts_all():
            await site.start_with(count)
        return site


@asynccontextmanager
async def untrusted_nodes(
    kind: Kind, databases: Databases, count: int
) -> AsyncIterator[UntrustedNodes]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        database = await enter(databases.fresh())
        chain = await enter(a_chain(kind))
        nodes = await enter(faulty_nodes(chain.rpc_url, NODES))
        instance = await enter(an_instance("--database-url", database, started=False))
        site = UntrustedNodes(kind, nodes, instance, chain.rpc_url)
        await site.begin(stack, count)
        yield site
        await site.recover()


@pytest_asyncio.fixture(scope="module")
async def sites(databases: Databases) -> AsyncIterator[Sites]:
    async with AsyncExitStack() as stack:
        yield Sites(stack, databases)
