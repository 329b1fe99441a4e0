"""A reorg below finality stops the index with a sentence; a rebuild follows the new branch."""

from msgspec.structs import replace

from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import ZERO_ADDRESS
from tests.support.chain.fake_node import CONTRACTS, FakeNode, transfer_log
from tests.support.chain.rebuilding import FILLING, a_rebuilder, order
from tests.support.rows.core import a_wallet, follow, running, value
from tests.support.rows.index_readers import IndexReader
from tests.support.waiting import until

ANN = a_wallet(1)
PRODUCTION = IndexerPolicy(
    poll_seconds=0.01, slowest_poll_seconds=0.05, term_pause_seconds=0.02, broken_after_seconds=0.0
)
STOPPED = "SELECT stopped_reason FROM chains"


def mine(node: FakeNode, count: int, amount: int) -> None:
    for _ in range(count):
        node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, amount)])


async def test_a_deep_reorg_stops_the_index_and_a_rebuild_follows_the_new_branch(
    pool: Pool, database_url: str
) -> None:
    node = FakeNode()
    node.final_depth = 3
    chain = await follow(pool, node)
    mine(node, 20, 1)
    hub = WakeupHub("")
    follower = Follower(pool, Leases(database_url), node.node, chain, CONTRACTS, hub, PRODUCTION)
    filling = replace(FILLING, follows_deep_reorgs=False)
    rebuilder = a_rebuilder(pool, database_url, node, policy=filling)
    reader = IndexReader(pool)

    async def is_indexed() -> bool:
        return (await reader.read()).cursor == (node.head.number, bytes(node.head.hash))

    async def is_final() -> bool:
        final: int = await value(pool, "SELECT final_number FROM chains")
        return final == 17

    async with running(follower.run(), rebuilder.run()):
        await until(is_indexed)
        await until(is_final)
        before = await reader.read()
        # The new branch's final block is 17, too: a look under way may read that one already.
        node.final_depth = 5
        node.forget_blocks(10)
        mine(node, 12, 5)

        reason = await until(lambda: value(pool, STOPPED))
        assert "below the final block 17. Run: ltzd index rebuild" in reason
        assert await reader.read() == before, "reads show the index as it was"

        await order(pool)
        await until(is_indexed)
        after = await reader.read()
        assert (after.held, after.transfers) == (10 + 12 * 5, 22)
        assert await value(pool, STOPPED) is None
        mine(node, 1, 7)
        await until(is_indexed)
        assert (await reader.read()).held == after.held + 7
