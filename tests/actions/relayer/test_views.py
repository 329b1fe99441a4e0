"""A decision about a relay reads one block of one node, whichever node fails or lags meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import pytest

from ltzd.actions.relayer.simulation import RelaySimulator, SimulatedAt
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.view import ChainView
from ltzd.chain.node.views import ChainViews
from ltzd.errors import NodeUnavailable
from ltzd.rules.operator.fees import FeePolicy
from ltzd.values import Hash32
from tests.support.chain.fake_node import FakeNode
from tests.support.chain.fake_pool import FakeNodePool, a_fake_pool
from tests.support.clocks import ManualClock
from tests.support.relays.lanes import PERKS, RELAYER, a_plan
from tests.support.rows.core import MINTER


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[FakeNode, FakeNode, FakeNodePool]]:
    first = FakeNode()
    first.mine(3)
    second = first.sibling()
    async with a_fake_pool(first, second) as pool:
        yield first, second, pool


async def test_a_simulation_reads_the_block_of_its_views_though_blocks_arrive() -> None:
    async with two_nodes() as (first, second, pool):
        views, simulator = ChainViews(pool.node("http")), RelaySimulator(first.node, FeePolicy())
        plan = a_plan(b"\x01\x02\x03\x04")
        seen: list[Hash32] = []

        async def decide(view: ChainView) -> int:
            seen.append(view.head.hash)
            await view.views([(PERKS, b"\x01"), (PERKS, b"\x02")])
            first.mine()
            at = SimulatedAt(view.node, view.head)
            limit = await simulator.gas_limit(plan, RELAYER.address, None, at)
            first.mine()
            return max(limit, await simulator.gas_limit(plan, RELAYER.address, 200_000, at))

        assert await views.decide(decide) == 200_000
        assert {*first.read_after, *second.read_after} == set(seen)
        assert len(seen) == 1


async def node_of(view: ChainView, *nodes: FakeNode) -> FakeNode:
    """Returns the node that answers a view's reads."""
    before = [node.call_counts["eth_getBalance"] for node in nodes]
    await view.balance(MINTER.address)
    (node,) = (
        node
        for node, count in zip(nodes, before, strict=True)
        if node.call_counts["eth_getBalance"] > count
    )
    return node


@pytest.mark.parametrize("fault", ["is_down", "is_hung"])
async def test_a_decision_whose_node_fails_is_made_again_on_another_node(fault: str) -> None:
    async with two_nodes() as (first, second, pool):
        tried: list[ChainView] = []

        async def decide(view: ChainView) -> int:
            tried.append(view)
            if len(tried) == 1:
                setattr(await node_of(view, first, second), fault, True)
            return await view.nonce(MINTER.address)

        assert await ChainViews(pool.node("http")).decide(decide) == 0
        assert len(tried) == 2


def refuse(_result: Any) -> NoReturn:
    raise RpcError(-32603, "internal error")


def lose_the_block(_result: Any) -> NoReturn:
    raise RpcError(-32000, "header not found")


USELESS: dict[str, Callable[[Any], Any]] = {
    "no number": lambda _result: "zz",
    "null": lambda _result: None,
    "an error": refuse,
    "no such block": lose_the_block,
}


@pytest.mark.parametrize("useless", USELESS.values(), ids=USELESS)
@pytest.mark.parametrize("honest", [1, 2])
async def test_a_decision_is_made_at_another_node_while_one_gives_useless_answers(
    useless: Callable[[Any], Any], honest: int
) -> None:
    """The node answers all else, so that its circuit stays closed."""
    first = FakeNode()
    nodes = [first, *(first.sibling() for _ in range(honest))]
    async with a_fake_pool(*nodes) as pool:
        views = ChainViews(pool.node("http"))
        first.false_answers["eth_getTransactionCount"] = useless
        assert await views.decide(lambda view: view.nonce(MINTER.address)) == 0
        assert await views.decide_at_head(lambda node: node.nonce(MINTER.address)) == 0


async def test_a_decision_is_made_at_the_third_node_if_two_give_useless_answers() -> None:
    first = FakeNode()
    second, third = first.sibling(), first.sibling()
    async with a_fake_pool(first, second, third) as pool:
        first.false_answers["eth_getTransactionCount"] = USELESS["an error"]
        second.false_answers["eth_getTransactionCount"] = USELESS["no number"]
        for _ in range(3):
            views = ChainViews(pool.node("http"))
            assert await views.decide_at_head(lambda node: node.nonce(MINTER.address)) == 0


async def test_a_node_is_reported_after_two_decisions_with_malformed_answers() -> None:
    async with two_nodes() as (first, _, pool):
        views = ChainViews(pool.node("http"))
        first.false_answers["eth_getTransactionCount"] = USELESS["no number"]
        for kinds in (set[str](), {"malformed_answer"}):
            await views.decide(lambda view: view.nonce(MINTER.address))
            assert pool.contradictions() == [kinds, set()]
        assert pool.ranked("http")[0] is pool.members[1]


async def test_malformed_answers_more_than_a_minute_apart_are_held_against_no_node() -> None:
    clock = ManualClock()
    async with two_nodes() as (first, _, pool):
        views = ChainViews(pool.node("http"), clock)
        first.false_answers["eth_getTransactionCount"] = USELESS["no number"]
        for _ in range(3):
            await views.decide(lambda view: view.nonce(MINTER.address))
            clock.now += 61
        assert pool.contradictions() == [set(), set()]


async def test_malformed_answers_to_decisions_of_one_moment_are_held_against_no_node() -> None:
    async with two_nodes() as (first, _, pool):
        views = ChainViews(pool.node("http"))
        first.false_answers["eth_getTransactionCount"] = USELESS["no number"]
        decisions = (views.decide(lambda view: view.nonce(MINTER.address)) for _ in range(10))
        assert await asyncio.gather(*decisions) == [0] * 10
        assert pool.contradictions() == [set(), set()]


async def test_an_only_node_with_malformed_answers_is_not_reported() -> None:
    node = FakeNode()
    async with a_fake_pool(node) as pool:
        views = ChainViews(pool.node("http"))
        node.false_answers["eth_getTransactionCount"] = USELESS["no number"]
        for _ in range(3):
            with pytest.raises(NodeUnavailable):
                await views.decide(lambda view: view.nonce(MINTER.address))
        assert pool.contradictions() == [set()]


async def test_a_decision_is_made_again_after_a_reorg_of_its_block() -> None:
    async with two_nodes() as (first, _, pool):
        tried: list[Hash32] = []

        async def decide(view: ChainView) -> int:
            tried.append(view.head.hash)
            if len(tried) == 1:
                first.reorg(1)
            return await view.nonce(MINTER.address)

        assert await ChainViews(pool.node("http")).decide(decide) == 0
        assert len(set(tried)) == 2


async def test_without_any_node_a_decision_fails() -> None:
    async with two_nodes() as (first, second, pool):
        first.is_down = second.is_down = True
        with pytest.raises(NodeUnavailable):
            await ChainViews(pool.node("http")).decide(lambda view: view.nonce(MINTER.address))


async def test_decisions_that_begin_together_share_the_read_of_the_block() -> None:
    node = FakeNode()
    node.mine()
    views = ChainViews(node.node)
    answers = await asyncio.gather(*(views.newest() for _ in range(50)))
    assert {view.head.hash for view in answers} == {node.head.hash}
    assert node.call_counts["eth_getBlockByNumber"] <= 2


async def test_a_view_is_never_older_than_the_call_for_it() -> None:
    node = FakeNode()
    views = ChainViews(node.node)
    for _ in range(5):
        block = node.mine()
        assert (await views.newest()).head.hash == block.hash
