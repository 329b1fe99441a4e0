"""The follower on a real pool of nodes: it goes on with the nodes that are right."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from ltzd.chain.node.rpc import RpcError
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import Cursor
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from tests.support.chain.fake_node import CHAIN_ID, CONTRACTS, FakeNode, transfer_log
from tests.support.chain.fake_pool import QUICK, FakeNodePool, a_fake_pool
from tests.support.chain.mint_world import true
from tests.support.rows.core import a_wallet, follow, running, value
from tests.support.waiting import until

POLICY = IndexerPolicy(
    poll_seconds=0.01,
    slowest_poll_seconds=0.01,
    second_check_seconds=0.5,
    stall_seconds=1.0,
    term_pause_seconds=0.02,
)
_SALTS = 1_000_000


def some_nodes(count: int, blocks: int = 8) -> list[FakeNode]:
    """Nodes that share their first blocks; blocks that each mines later differ."""
    nodes = [FakeNode() for _ in range(count)]
    for position, node in enumerate(nodes):
        node._salt = position * _SALTS
    nodes[0].mine(blocks)
    share(nodes[0], nodes)
    return nodes


def share(source: FakeNode, nodes: Sequence[FakeNode]) -> None:
    for node in nodes:
        node.blocks = list(source.blocks)


async def cursor_of(pool: Pool) -> Cursor:
    async with session(pool) as connection:
        return await chains.cursor(connection, CHAIN_ID)


async def until_indexed(pool: Pool, node: FakeNode) -> None:
    async def is_indexed() -> bool:
        return (await cursor_of(pool)).hash == node.head.hash

    await until(is_indexed)


@asynccontextmanager
async def following(
    pool: Pool, url: str, nodes: Sequence[FakeNode], policy: IndexerPolicy = POLICY
) -> AsyncIterator[FakeNodePool]:
    chain = await follow(pool, nodes[0])
    compares = replace(QUICK, compare_pause=0.05, compare_depth=0)
    async with a_fake_pool(*nodes, policy=compares) as node_pool:
        node = node_pool.node("indexer")
        follower = Follower(pool, Leases(url), node, chain, CONTRACTS, WakeupHub(""), policy)
        async with running(follower.run()):
            await until_indexed(pool, nodes[0])
            yield node_pool


def in_use(node_pool: FakeNodePool) -> int:
    return next(i for i, report in enumerate(node_pool.reports()) if report.is_preferred)


async def test_the_node_in_use_becomes_stale_and_another_is_followed(
    pool: Pool, database_url: str
) -> None:
    nodes = some_nodes(2)
    async with following(pool, database_url, nodes) as node_pool:
        used = in_use(node_pool)
        fresh = nodes[1 - used]
        nodes[used].lag = 4
        fresh.mine(3)
        await until_indexed(pool, fresh)


async def test_the_node_in_use_dies_and_another_is_followed(pool: Pool, database_url: str) -> None:
    nodes = some_nodes(2)
    async with following(pool, database_url, nodes) as node_pool:
        used = in_use(node_pool)
        fresh = nodes[1 - used]
        nodes[used].is_down = True
        fresh.mine(3)
        await until_indexed(pool, fresh)


async def test_one_liar_of_three_is_outvoted_and_reported(pool: Pool, database_url: str) -> None:
    nodes = some_nodes(3)
    async with following(pool, database_url, nodes) as node_pool:
        used = in_use(node_pool)
        honest = [node for i, node in enumerate(nodes) if i != used]
        nodes[used].reorg(2)
        honest[0].mine(2)
        share(honest[0], honest)
        await until_indexed(pool, honest[0])

        async def is_reported() -> bool:
            return bool(node_pool.contradictions()[used])

        await until(is_reported)
        honest[0].mine(2)
        share(honest[0], honest)
        await until_indexed(pool, honest[0])


async def test_two_nodes_that_contradict_each_other_stop_the_index_until_they_agree(
    pool: Pool, database_url: str
) -> None:
    """The pool distrusts both meanwhile, which must not make either of them right."""
    nodes = some_nodes(2)
    async with following(pool, database_url, nodes) as node_pool:
        before = await cursor_of(pool)
        nodes[in_use(node_pool)].reorg(1)
        tied_until = asyncio.get_running_loop().time() + 2 * POLICY.stall_seconds

        async def are_both_distrusted_for_long() -> bool:
            for node in nodes:
                node.mine()
            is_late = asyncio.get_running_loop().time() > tied_until
            return is_late and all(node_pool.contradictions())

        await until(are_both_distrusted_for_long)
        assert await cursor_of(pool) == before

        share(nodes[0], nodes)
        await until_indexed(pool, nodes[0])


async def test_a_node_whose_logs_are_malformed_is_reported_and_named_once_in_the_log(
    pool: Pool, database_url: str
) -> None:
    """The node answers, so that its circuit stays closed."""
    nodes = some_nodes(2)
    async with following(pool, database_url, nodes) as node_pool:
        used = in_use(node_pool)
        fresh = nodes[1 - used]
        with capture_logs() as lines:
            nodes[used].false_answers["eth_getLogs"] = no_list
            for _ in range(5):
                fresh.mine()
                share(fresh, nodes)
                await until_indexed(pool, fresh)
        assert node_pool.contradictions()[used] == {"malformed_answer"}
        assert len([line for line in lines if line["event"] == "indexer.next_node"]) <= 1


async def test_errors_of_the_node_in_use_are_logged_once_while_another_is_followed(
    pool: Pool, database_url: str
) -> None:
    nodes = some_nodes(2)
    async with following(pool, database_url, nodes) as node_pool:
        used = in_use(node_pool)
        fresh = nodes[1 - used]
        with capture_logs() as lines:
            nodes[used].false_answers["eth_getLogs"] = internal_error
            for _ in range(5):
                fresh.mine()
                share(fresh, nodes)
                await until_indexed(pool, fresh)
        assert len([line for line in lines if line["event"] == "indexer.next_node"]) == 1
        assert node_pool.contradictions() == [set(), set()]


async def test_logs_that_two_nodes_dispute_are_logged_once_until_they_agree(
    pool: Pool, database_url: str
) -> None:
    nodes = some_nodes(2)
    async with following(pool, database_url, nodes) as node_pool:
        used = in_use(node_pool)
        before = (await cursor_of(pool)).number
        with capture_logs() as lines:
            nodes[used].false_answers["eth_getLogs"] = of_other_transactions
            requests = nodes[used].call_counts["eth_getLogs"]
            nodes[used].mine(logs=[transfer_log(bytes(20), a_wallet(1), 5)])
            share(nodes[used], nodes)
            await until(lambda: true(nodes[used].call_counts["eth_getLogs"] > requests + 20))
            assert (await cursor_of(pool)).number == before
            del nodes[used].false_answers["eth_getLogs"]
            await until_indexed(pool, nodes[used])
        names = [line["event"] for line in lines]
        assert names.count("indexer.nodes_disagree_on_logs") == 1
        assert node_pool.contradictions() == [{"logs"}, {"logs"}]


@pytest.mark.parametrize("is_liar_in_use", [True, False])
async def test_logs_that_two_nodes_dispute_are_never_written(
    pool: Pool, database_url: str, is_liar_in_use: bool
) -> None:
    """Neither node is trusted more than the other, however long the dispute lasts."""
    nodes = some_nodes(2)
    async with following(pool, database_url, nodes) as node_pool:
        used = in_use(node_pool)
        liar = nodes[used] if is_liar_in_use else nodes[1 - used]
        liar.false_answers["eth_getLogs"] = of_other_amounts
        nodes[used].mine(logs=[transfer_log(bytes(20), a_wallet(1), 5)])
        share(nodes[used], nodes)
        tied_until = asyncio.get_running_loop().time() + 3 * POLICY.stall_seconds
        while asyncio.get_running_loop().time() < tied_until:
            assert await value(pool, "SELECT count(*) FROM balances") == 0
            await asyncio.sleep(0.05)
        assert node_pool.contradictions() == [{"logs"}, {"logs"}]
        del liar.false_answers["eth_getLogs"]
        await until_indexed(pool, nodes[used])
        assert await value(pool, "SELECT sum(amount) FROM balances") == 5


class WithoutLogs(FakeNode):
    """Accepts requests for logs and never answers them; answers all else."""

    is_silent = False

    async def _answer(self, method: str, params: Sequence[Any]) -> Any:
        if self.is_silent and method == "eth_getLogs":
            self.call_counts[method] += 1
            await asyncio.Event().wait()
        return await super()._answer(method, params)


async def test_a_block_waits_once_for_a_witness_that_is_silent(
    pool: Pool, database_url: str
) -> None:
    first = WithoutLogs()
    first.mine(8)
    nodes = [first, WithoutLogs()]
    share(first, nodes)
    async with following(pool, database_url, nodes) as node_pool:
        used = in_use(node_pool)
        witness = nodes[1 - used]
        witness.is_silent = True
        before = witness.call_counts["eth_getLogs"]
        nodes[used].mine(logs=[transfer_log(bytes(20), a_wallet(1), 5)])
        share(nodes[used], nodes)
        await until_indexed(pool, nodes[used])
        assert witness.call_counts["eth_getLogs"] <= before + 2
        assert "block_links" not in node_pool.contradictions()[used]


def of_other_amounts(logs: list[dict[str, object]]) -> list[dict[str, object]]:
    return [log | {"data": "0x" + (7).to_bytes(32, "big").hex()} for log in logs]


def no_list(_result: object) -> str:
    return "zz"


def internal_error(_result: object) -> NoReturn:
    raise RpcError(-32603, "internal error")


def of_other_transactions(logs: list[dict[str, object]]) -> list[dict[str, object]]:
    return [log | {"transactionHash": "0x" + "ab" * 32} for log in logs]
