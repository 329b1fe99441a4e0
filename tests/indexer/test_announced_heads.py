"""The follower takes an announced head at once, in one request, and never depends on one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.new_heads import NewHeads
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc
from ltzd.dev.services.chain import Kind
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import BlockRow, ChainIdentity
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import ZERO_ADDRESS
from tests.support.chain.chains import a_chain
from tests.support.chain.fake_node import CHAIN_ID, CONTRACTS, LTZ_AT, FakeNode, transfer_log
from tests.support.chain.node_group import NodeGroup
from tests.support.rows.core import a_wallet, follow, running, value
from tests.support.waiting import until

NEVER_POLLS = IndexerPolicy(poll_seconds=3600.0, slowest_poll_seconds=3600.0)


@dataclass
class ScriptedHeads:
    """Announcements that a test makes; `observed` are the heads that the follower told of."""

    queue: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    observed: list[int] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    async def wait(self, seconds: float) -> int | None:
        self.waits.append(seconds)
        try:
            async with asyncio.timeout(seconds):
                return await self.queue.get()
        except TimeoutError:
            return None

    def observe(self, head: Header) -> None:
        self.observed.append(head.number)


async def cursor_of(pool: Pool, chain_id: int = CHAIN_ID) -> int:
    async with session(pool) as connection:
        return (await chains.cursor(connection, chain_id)).number


@asynccontextmanager
async def following(
    pool: Pool, url: str, node: Node, chain: ChainIdentity, policy: IndexerPolicy = NEVER_POLLS
) -> AsyncIterator[ScriptedHeads]:
    heads = ScriptedHeads()
    follower = Follower(pool, Leases(url), node, chain, CONTRACTS, WakeupHub(""), policy)
    follower.listen_to(heads)
    async with running(follower.run()):

        async def is_waiting() -> bool:
            return bool(heads.waits)

        await until(is_waiting)
        yield heads


async def test_an_announced_block_is_read_in_one_request(pool: Pool, database_url: str) -> None:
    node = FakeNode()
    node.mine(3)
    requests: list[list[str]] = []
    real = node.outcomes

    async def counted(calls: object) -> object:
        requests.append([method for method, _ in calls])  # type: ignore[attr-defined]
        return await real(calls)  # type: ignore[arg-type]

    node.outcomes = counted  # type: ignore[method-assign, assignment]
    async with following(pool, database_url, node.node, await follow(pool, node)) as heads:
        requests.clear()
        node.mine(logs=[transfer_log(ZERO_ADDRESS, a_wallet(1), 5)])
        await heads.queue.put(4)

        async def is_indexed() -> bool:
            return await cursor_of(pool) == 4

        await until(is_indexed)
        assert requests == [
            ["eth_getBlockByNumber", "eth_getBlockByNumber", "eth_getBlockByNumber", "eth_getLogs"]
        ]
    assert await value(pool, "SELECT count(*) FROM transfers") == 1
    assert heads.observed[-1] == 4


async def test_an_announced_block_that_the_node_lacks_is_looked_for_again(
    pool: Pool, database_url: str
) -> None:
    """Another node announced it: the node in use gets it a moment later."""
    node = FakeNode()
    node.mine(3)
    policy = replace(NEVER_POLLS, retry_seconds=0.01)
    async with following(pool, database_url, node.node, await follow(pool, node), policy) as heads:
        await heads.queue.put(4)
        looks = len(heads.observed)

        async def has_looked_again() -> bool:
            return len(heads.observed) > looks + 2

        await until(has_looked_again)
        node.mine()

        async def is_indexed() -> bool:
            return await cursor_of(pool) == 4

        await until(is_indexed)


async def test_a_head_that_no_node_has_costs_a_few_looks(pool: Pool, database_url: str) -> None:
    node = FakeNode()
    node.mine(3)
    policy = replace(NEVER_POLLS, poll_seconds=0.04, retry_seconds=0.01)
    async with following(pool, database_url, node.node, await follow(pool, node), policy) as heads:
        looks, pauses = len(heads.observed), len(heads.waits)
        await heads.queue.put(10**9)

        async def is_waiting_again() -> bool:
            return len(heads.waits) > pauses

        await until(is_waiting_again)
        assert len(heads.observed) - looks <= 5
        node.mine()
        await heads.queue.put(4)

        async def is_indexed() -> bool:
            return await cursor_of(pool) == 4

        await until(is_indexed)


async def test_a_flood_of_announcements_causes_no_more_looks_than_polling(
    pool: Pool, database_url: str
) -> None:
    node = FakeNode()
    node.mine(3)
    policy = replace(NEVER_POLLS, poll_seconds=0.04, retry_seconds=0.01)
    async with following(pool, database_url, node.node, await follow(pool, node), policy) as heads:
        looks, began = len(heads.observed), asyncio.get_running_loop().time()
        for _ in range(20):
            await heads.queue.put(2)

        async def have_all_been_taken() -> bool:
            return len(heads.observed) >= looks + 20

        await until(have_all_been_taken)
        assert asyncio.get_running_loop().time() - began >= 15 * policy.poll_seconds


async def test_polls_follow_the_measured_block_time(pool: Pool, database_url: str) -> None:
    """The fake's blocks have a timestamp each second."""
    node = FakeNode()
    policy = IndexerPolicy(poll_seconds=0.01, slowest_poll_seconds=0.3)
    async with following(pool, database_url, node.node, await follow(pool, node), policy) as heads:
        assert heads.waits[-1] == 0.01
        for number in range(1, 8):
            node.mine()
            await heads.queue.put(number)

            async def is_indexed(number: int = number) -> bool:
                return await cursor_of(pool) == number

            await until(is_indexed)

        async def waits_longer() -> bool:
            return heads.waits[-1] == 0.3

        await until(waits_longer)


async def test_the_head_of_any_node_is_taken(pool: Pool, database_url: str) -> None:
    """The node in use never gets the announced block; the pool turns to the other one."""
    nodes = NodeGroup.of(2, blocks=3)
    policy = replace(NEVER_POLLS, retry_seconds=0.01)
    chain = await follow(pool, nodes.nodes[0])
    async with following(pool, database_url, nodes.node, chain, policy) as heads:
        nodes.nodes[1].mine()
        await heads.queue.put(4)
        nodes.in_use = 1

        async def is_indexed() -> bool:
            return await cursor_of(pool) == 4

        await until(is_indexed)


@pytest.mark.parametrize("kind", ["tester", "anvil"])
async def test_a_follower_that_never_polls_follows_a_real_chain(
    pool: Pool, database_url: str, kind: Kind
) -> None:
    async with a_chain(kind) as started, Rpc(started.rpc_url) as rpc:
        node = Node(rpc)
        genesis = await node.block(0)
        assert isinstance(genesis, Header)
        chain = ChainIdentity(started.chain_id, genesis.hash, LTZ_AT, 1)
        base = BlockRow(0, genesis.hash, genesis.parent_hash, genesis.timestamp)
        async with transaction(pool) as connection:
            await chains.start_following(connection, chain, base)
        heads = NewHeads([started.rpc_url.replace("http", "ws", 1)])
        follower = Follower(
            pool, Leases(database_url), node, chain, CONTRACTS, WakeupHub(""), NEVER_POLLS
        )
        follower.listen_to(heads)
        async with running(heads.run(), follower.run()):

            async def is_listening() -> bool:
                return heads.sockets[0].is_open and follower.is_serving

            await until(is_listening)
            for number in range(1, 6):
                await rpc.call("evm_mine")

                async def is_indexed(number: int = number) -> bool:
                    return await cursor_of(pool, started.chain_id) == number

                await until(is_indexed)
