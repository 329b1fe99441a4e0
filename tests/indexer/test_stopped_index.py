"""An impossible fact stops the index, and neither the task nor the process."""

import pytest

from ltzd.errors import ImpossibleFact, LaneLost
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store import wakeups
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import BLOCKS, WakeupHub
from ltzd.values import ZERO_ADDRESS
from tests.support.chain.fake_node import CHAIN_ID, CONTRACTS, FakeNode, transfer_log
from tests.support.rows.core import a_wallet, follow, running, value
from tests.support.waiting import until

ANN, BOB = a_wallet(1), a_wallet(2)
POLICY = IndexerPolicy(
    poll_seconds=0.01,
    head_blocks=1_000,
    term_pause_seconds=0.02,
    broken_after_seconds=0.0,
    second_check_seconds=0.0,
)
REASON = "SELECT stopped_reason FROM chains"


@pytest.fixture
async def node(pool: Pool) -> FakeNode:
    node = FakeNode()
    await follow(pool, node)
    return node


async def a_follower(pool: Pool, url: str, node: FakeNode) -> Follower:
    async with session(pool) as connection:
        chain = await chains.identity(connection)
    assert chain is not None
    hub = WakeupHub("")
    return Follower(pool, Leases(url), node.node, chain, CONTRACTS, hub, POLICY)


async def resume(pool: Pool) -> None:
    async with transaction(pool) as connection:
        assert await chains.resume(connection, CHAIN_ID)
        await wakeups.notify(connection, BLOCKS)


async def test_an_impossible_fact_stops_the_index_until_it_is_told_to_go_on(
    pool: Pool, database_url: str, node: FakeNode
) -> None:
    node.mine(logs=[transfer_log(ZERO_ADDRESS, BOB, 10)])
    node.mine(logs=[transfer_log(ANN, BOB, 4)])
    follower = await a_follower(pool, database_url, node)

    async with running(follower.run()):
        reason = await until(lambda: value(pool, REASON))
        assert reason == (
            "After block 0: A wallet without a balance spends LTZ. "
            "Run: ltzd index repair --config FILE"
        )
        node.mine()
        assert await value(pool, "SELECT count(*) FROM transfers") == 0
    stopped_at = await value(pool, "SELECT stopped_at FROM chains")

    restarted = await a_follower(pool, database_url, node)
    async with running(restarted.run()):
        await until(lambda: value(pool, "SELECT epoch >= 2 FROM chains"))
        assert await value(pool, "SELECT stopped_at FROM chains") == stopped_at
        node.blocks[2:] = []
        await resume(pool)
        node.mine(2)
        await until(lambda: value(pool, "SELECT cursor_number = 3 FROM chains"))
    assert await value(pool, "SELECT amount FROM balances") == 10


async def test_a_reorg_below_finality_stops_the_index_and_names_the_rebuild(
    pool: Pool, database_url: str, node: FakeNode
) -> None:
    node.final_depth = 3
    node.mine(10)
    follower = await a_follower(pool, database_url, node)
    async with running(follower.run()):
        await until(lambda: value(pool, "SELECT final_number = 7 FROM chains"))
        node.reorg(5)
        reason = await until(lambda: value(pool, REASON))
    assert "below the final block 7" in reason
    assert reason.endswith("Run: ltzd index rebuild --config FILE")


async def test_a_negative_balance_is_an_impossible_fact(
    pool: Pool, database_url: str, node: FakeNode
) -> None:
    node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 3)])
    follower = await a_follower(pool, database_url, node)
    await follower.begin_term()
    while await follower.step():
        pass
    node.mine(logs=[transfer_log(ANN, BOB, 4)])

    with pytest.raises(ImpossibleFact, match="balances_amount_check"):
        await follower.step()
    assert await value(pool, "SELECT amount FROM balances") == 3


async def test_a_holder_of_an_earlier_term_stops_nothing(
    pool: Pool, database_url: str, node: FakeNode
) -> None:
    first = await a_follower(pool, database_url, node)
    await first.begin_term()
    await (await a_follower(pool, database_url, node)).begin_term()

    async with session(pool) as connection:
        with pytest.raises(LaneLost):
            await chains.stop(connection, CHAIN_ID, 1, "an old reason")
    assert await value(pool, REASON) is None


async def test_a_stopped_index_takes_no_blocks(
    pool: Pool, database_url: str, node: FakeNode
) -> None:
    follower = await a_follower(pool, database_url, node)
    await follower.begin_term()
    async with session(pool) as connection:
        await chains.stop(connection, CHAIN_ID, 1, "a reason")
    node.mine()

    with pytest.raises(LaneLost):
        await follower.step()
