"""The mint limit's capacity by several nodes: a refusal for good is no single node's word."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ltzd.actions.mint_capacity import MintCapacity
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
