"""The mint limit's capacity by several nodes: a refusal for good is no single node's word."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from ltzd.actions.mint_capacity import MintCapacity
from ltzd.chain.node.rpc import RpcError
from ltzd.store.database import Pool
from ltzd.values import LTZ
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode
from tests.support.chain.fake_pool import FakeNodePool, a_fake_pool
from tests.support.clocks import ManualClock
from tests.support.rows.core import a_wallet, value
from tests.support.waiting import until

TRUE, LOW = 1_000, 1


@asynccontextmanager
async def a_capacity(
    pool: Pool, *capacities: int, clock: ManualClock | None = None
) -> AsyncIterator[tuple[MintCapacity, FakeNodePool, list[FakeNode]]]:
    """Yields the capacity by nodes of one chain that claim these capacities, and the nodes."""
    await value(
        pool,
        "INSERT INTO lanes (chain_id, wallet, kind, next_nonce) VALUES ($1, $2, 'mint', 0)",
        CHAIN_ID,
        a_wallet(99),
    )
    first = FakeNode()
    nodes = [first, *(first.sibling() for _ in capacities[1:])]
    for node, claimed in zip(nodes, capacities, strict=True):
        node.mint_capacity = claimed * LTZ
    async with a_fake_pool(*nodes) as node_pool:
        node_pool.prefer(0)
        capacity = MintCapacity(
            pool, node_pool.node("http"), CHAIN_ID, LTZ_AT, clock or ManualClock()
        )
        yield capacity, node_pool, nodes


@pytest.mark.parametrize("honest", [1, 2])
async def test_one_nodes_low_mint_limit_refuses_no_reward(pool: Pool, honest: int) -> None:
    async with a_capacity(pool, LOW, *[TRUE] * honest) as (capacity, nodes, _):
        assert await capacity.exceeded_by(TRUE) is None
        assert await capacity.whole_ltz_for(TRUE) == TRUE
        assert "mint_capacity" in nodes.contradictions()[0]
        if honest == 2:
            assert nodes.ranked("http")[0] is not nodes.members[0], "the liar is asked last"
            assert await capacity.exceeded_by(TRUE + 1) == TRUE


async def test_one_nodes_high_mint_limit_of_three_keeps_no_reward_from_being_refused(
    pool: Pool,
) -> None:
    async with a_capacity(pool, TRUE, 10 * TRUE, TRUE) as (capacity, nodes, _):
        assert await capacity.exceeded_by(TRUE + 1) == TRUE
        assert nodes.contradictions() == [set(), {"mint_capacity"}, set()]


async def test_a_low_mint_limit_refuses_once_another_node_confirms_it(pool: Pool) -> None:
    clock = ManualClock()
    async with a_capacity(pool, TRUE, TRUE, clock=clock) as (capacity, nodes, (_, second)):
        second.is_down = True
        assert await capacity.exceeded_by(TRUE + 1) is None, "the reward waits in the queue"
        assert await capacity.whole_ltz_for(TRUE + 1) is None
        second.is_down = False

        async def refused_a_second_later() -> bool:
            clock.now += 1
            return await capacity.exceeded_by(TRUE + 1) == TRUE

        await until(refused_a_second_later)
        assert nodes.contradictions() == [set(), set()]


async def test_a_reward_within_the_mint_limit_is_asked_of_no_other_node(pool: Pool) -> None:
    async with a_capacity(pool, TRUE, LOW) as (capacity, _, (_, second)):
        assert await capacity.exceeded_by(TRUE) is None
        assert second.call_counts["eth_call"] == 0


async def test_the_only_nodes_mint_limit_is_believed(pool: Pool) -> None:
    async with a_capacity(pool, LOW) as (capacity, _, (node,)):
        assert await capacity.exceeded_by(TRUE) == LOW
        assert node.call_counts["eth_call"] == 1, "nobody else is left to compare with"


async def test_a_reward_that_exceeds_the_capacity_is_told_from_one_that_fits(pool: Pool) -> None:
    async with a_capacity(pool, TRUE) as (capacity, _, (node,)):
        assert [await capacity.exceeded_by(ltz) for ltz in (1, TRUE)] == [None, None]
        assert await capacity.exceeded_by(TRUE + 1) == TRUE
        assert await capacity.whole_ltz_for(TRUE) == TRUE
        assert node.call_counts["eth_call"] == 1


async def test_a_capacity_of_zero_refuses_no_reward(pool: Pool) -> None:
    async with a_capacity(pool, 0, 0) as (capacity, _, __):
        assert await capacity.whole_ltz() == 0
        assert await capacity.exceeded_by(TRUE) is None


async def test_the_capacity_is_read_once_a_minute_and_sooner_while_no_lane_is_served(
    pool: Pool,
) -> None:
    clock = ManualClock()
    serve = "UPDATE lanes SET kind = $1 RETURNING 1"
    async with a_capacity(pool, TRUE, clock=clock) as (capacity, _, (node,)):
        await value(pool, serve, "relay")
        assert await capacity.whole_ltz() is None
        await value(pool, serve, "mint")
        clock.now += 4.75
        assert await capacity.whole_ltz() is None
        clock.now += 0.25
        assert await capacity.whole_ltz() == TRUE
        node.mint_capacity = LOW * LTZ
        clock.now += 59.75
        assert await capacity.whole_ltz() == TRUE
        clock.now += 0.25
        assert await capacity.whole_ltz() == LOW
        await value(pool, serve, "relay")
        clock.now += 60
        assert await capacity.whole_ltz() == LOW, "the last answer stays"


async def test_callers_have_the_last_capacity_while_one_of_them_waits_for_the_node(
    pool: Pool,
) -> None:
    clock = ManualClock()
    async with a_capacity(pool, TRUE, clock=clock) as (capacity, _, (node,)):
        assert await capacity.whole_ltz() == TRUE
        clock.now += 60
        node.is_hung = True
        waiting = asyncio.create_task(capacity.whole_ltz())

        async def is_waiting() -> bool:
            return node.hanging == 1

        await until(is_waiting)
        assert await capacity.whole_ltz() == TRUE
        assert not waiting.done()
        assert await waiting == TRUE, "the node has not answered in time"


def refuse(_answer: object) -> str:
    raise RpcError(-32000, "execution reverted")


@pytest.mark.parametrize("answer", [refuse, lambda _: "0x", lambda _: "0x" + "00" * 31])
async def test_a_malformed_mint_limit_counts_as_no_answer(
    pool: Pool, answer: Callable[[object], str]
) -> None:
    async with a_capacity(pool, TRUE) as (capacity, _, (node,)):
        node.false_answers["eth_call"] = answer
        assert await capacity.whole_ltz() is None
        assert await capacity.exceeded_by(TRUE + 1) is None


async def test_a_capacity_that_no_node_confirms_is_compared_once_a_second(pool: Pool) -> None:
    clock = ManualClock()
    async with a_capacity(pool, TRUE, TRUE, clock=clock) as (capacity, _, (first, second)):
        second.is_down = True
        assert await capacity.exceeded_by(TRUE + 1) is None
        calls = first.call_counts["eth_call"]
        clock.now += 0.75
        assert await capacity.exceeded_by(TRUE + 1) is None
        assert first.call_counts["eth_call"] == calls
        clock.now += 0.25
        assert await capacity.exceeded_by(TRUE + 1) is None
        assert first.call_counts["eth_call"] == calls + 1
