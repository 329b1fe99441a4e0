"""Nodes that lag, resync or have no finality, with the lane and the indexer in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from msgspec import structs

from ltzd.errors import Broken, NodeUnavailable
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.operator.mints.lane import MintLane
from ltzd.operator.policy import LanePauses, LanePolicy, MintTarget
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import Cursor
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import REWARDS, WakeupHub
from tests.support.chain.fake_node import CHAIN_ID, CONTRACTS, LTZ_AT, FakeNode
from tests.support.rows.core import (
    MINTER,
    a_hash,
    a_wallet,
    follow,
    pool,
    queue_rewards,
    running,
    states,
    value,
)
from tests.support.waiting import until

__all__ = ["pool"]

FOLLOW = IndexerPolicy(poll_seconds=0.01, head_blocks=100, final_depth=3, final_seconds=0.0)
LANE = LanePolicy(poll_seconds=0.01, repeat_seconds=0.3)


@pytest.fixture
async def node() -> FakeNode:
    node = FakeNode()
    node.mine()
    return node


@pytest.fixture
async def follower(pool: Pool, database_url: str, node: FakeNode) -> Follower:
    """A follower whose second look at a short head counts at once."""
    policy = structs.replace(FOLLOW, second_check_seconds=0.0, broken_after_seconds=0.0)
    chain = await follow(pool, node)
    follower = Follower(
        pool, Leases(database_url), node.node, chain, CONTRACTS, WakeupHub(""), policy
    )
    async with session(pool) as connection:
        follower._epoch = await chains.begin_term(connection, CHAIN_ID)
    return follower


@asynccontextmanager
async def serving(
    pool: Pool, url: str, node: FakeNode, wakeups: WakeupHub, policy: LanePolicy = LANE
) -> AsyncIterator[MintLane]:
    target = MintTarget(CHAIN_ID, LTZ_AT)
    lane = MintLane(pool, Leases(url), node.node, MINTER, target, wakeups, policy)
    indexer = Follower(
        pool, Leases(url), node.node, await follow(pool, node), CONTRACTS, wakeups, FOLLOW
    )
    async with running(indexer.run(), lane.run()):
        await until(lambda: _true(lane.is_ready))
        yield lane


async def _true(claim: bool) -> bool:
    return claim


async def cursor_of(pool: Pool) -> Cursor:
    async with session(pool) as connection:
        return await chains.cursor(connection, CHAIN_ID)


async def unminted(pool: Pool) -> int:
    count: int = await value(pool, "SELECT count(*) FROM rewards WHERE mint_block_hash IS NULL")
    return count


async def test_dropped_bytes_are_sent_again_to_a_node_without_finality(
    pool: Pool, database_url: str, node: FakeNode
) -> None:
    node.final_depth = None
    wakeups = WakeupHub("")
    async with serving(pool, database_url, node, wakeups):
        await queue_rewards(pool, 2)
        wakeups.notify(REWARDS)
        await until(lambda: _true(len(node.pool) == 1))
        node.pool.clear()
        await until(lambda: _true(len(node.pool) == 1))
        node.mine()

        async def all_minted() -> bool:
            return await unminted(pool) == 0

        await until(all_minted)


async def test_a_nonce_used_elsewhere_is_noticed_on_a_node_without_finality(
    pool: Pool, database_url: str, node: FakeNode
) -> None:
    node.final_depth = None
    node.lost_requests = 1_000_000
    wakeups = WakeupHub("")
    async with serving(pool, database_url, node, wakeups):
        await queue_rewards(pool, 1)
        wakeups.notify(REWARDS)
        await until(lambda: _is(pool, "signed"))
        node.use_nonce(MINTER)
        node.lost_requests = 0
        node.mine(4)
        await until(lambda: _is(pool, "displaced"))


async def _is(pool: Pool, *wanted: str) -> bool:
    return await states(pool) == list(wanted)


async def test_the_indexer_waits_for_a_resyncing_node(
    pool: Pool, node: FakeNode, follower: Follower
) -> None:
    node.final_depth = 3
    node.mine(20)
    await follower.step()
    await follower.step()
    before = await cursor_of(pool)
    assert before.final_number == 18

    node.lag = 15
    await follower.step()
    with pytest.raises(NodeUnavailable, match="is behind the final block"):
        await follower.step()
    assert await cursor_of(pool) == before

    node.lag = 0
    node.mine()
    await follower.step()
    assert (await cursor_of(pool)).number == 22


async def test_the_indexer_does_not_wait_for_a_node_that_syncs_another_chain(
    pool: Pool, node: FakeNode, follower: Follower
) -> None:
    node.final_depth = 3
    node.mine(20)
    await follower.step()
    await follower.step()
    fork = node.blocks[5].hash
    node.blocks = [
        replace(
            block,
            hash=a_hash(f"other {block.number}"),
            parent_hash=a_hash(f"other {block.number - 1}") if block.number > 6 else fork,
        )
        if block.number > 5
        else block
        for block in node.blocks[:10]
    ]
    await follower.step()
    for _ in range(2):
        with pytest.raises(NodeUnavailable, match="says one node"):
            await follower.step()
    with pytest.raises(Broken, match="below the final block"):
        await follower.step()


async def test_finality_that_a_node_omits_once_is_not_guessed(
    pool: Pool, node: FakeNode, follower: Follower
) -> None:
    node.final_depth = 15
    node.mine(20)
    await follower.step()
    assert (await cursor_of(pool)).final_number == 6

    node.final_depth = None
    await follower.step()
    assert (await cursor_of(pool)).final_number == 6


async def test_a_reward_that_can_never_be_minted_delays_no_other(
    pool: Pool, database_url: str, node: FakeNode
) -> None:
    node.final_depth = 1
    node.mines_at_once = True
    wakeups = WakeupHub("")
    poison = bytes(12) + a_wallet(3)
    node.reverts = lambda data: poison in data
    await queue_rewards(pool, 6)

    async def all_but_one() -> bool:
        node.mine()
        return await unminted(pool) == 1

    async with serving(pool, database_url, node, wakeups):
        await until(all_but_one)
    reverted = "SELECT count(*) FROM transactions WHERE NOT succeeded"
    assert await value(pool, reverted) == 1

    async with serving(pool, database_url, node, wakeups):
        await queue_rewards(pool, 2)
        wakeups.notify(REWARDS)
        await until(all_but_one)
    assert await value(pool, reverted) == 1, (
        "a later term simulates the rewards that reverted before"
    )


async def test_a_stopped_lane_signs_nothing_in_its_next_terms(
    pool: Pool, database_url: str, node: FakeNode
) -> None:
    policy = structs.replace(LANE, pauses=LanePauses(after_stop=0.02))
    node.final_depth = 1
    wakeups = WakeupHub("")
    async with serving(pool, database_url, node, wakeups, policy) as lane:
        node.mine()
        node.head.used[0] = b"\xee" * 32
        await queue_rewards(pool, 2)
        wakeups.notify(REWARDS)
        await until(lambda: _true(len(node.pool) == 1))
        node.mine()
        await until(lambda: _is(pool, "mined"))
        await queue_rewards(pool, 1)
        wakeups.notify(REWARDS)
        await until(lambda: _is(pool, "mined", "published"))
        node.mine(3, takes_pool=False)
        await until(lambda: _true(lane.stopped is not None))
        await queue_rewards(pool, 2)
        looks = node.call_counts["eth_call"]
        await until(lambda: _true(node.call_counts["eth_call"] > looks + 10))
        assert await states(pool) == ["mined", "published"]
