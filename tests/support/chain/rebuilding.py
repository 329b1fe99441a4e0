"""A process's rebuilder of the index over a fake node, with short pauses."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from ltzd.indexer.contracts import IndexedContract
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.indexer.rebuild import Rebuilder, RebuildPolicy
from ltzd.store import role_pools
from ltzd.store.database import Pool, session
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.store.indexer.rebuild import orders
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from tests.support.chain.fake_node import CHAIN_ID, CONTRACTS, LTZ_AT, FakeNode
from tests.support.chain.mortal_pool import Life, mortal
from tests.support.rows.core import running
from tests.support.waiting import until

FILLING = IndexerPolicy(
    poll_seconds=0.01, follows_deep_reorgs=True, head_blocks=1_000, term_pause_seconds=0.02
)
PAUSES = RebuildPolicy(
    poll_seconds=0.02,
    retry_seconds=0.05,
    busy_seconds=0.05,
    busiest_seconds=0.1,
    resume_seconds=0.1,
)


def a_rebuilder(
    pool: Pool,
    url: str,
    node: FakeNode,
    contracts: Sequence[IndexedContract] = CONTRACTS,
    policy: IndexerPolicy = FILLING,
    life: Life | None = None,
    pauses: RebuildPolicy = PAUSES,
) -> Rebuilder:
    """With `life` the rebuilder raises Killed at its end."""
    chain = ChainIdentity(CHAIN_ID, node.blocks[0].hash, LTZ_AT, 1)
    leases = Leases(url)
    hub = WakeupHub("")

    async def open_fresh_pool(search_path: str) -> Pool:
        fresh_pool = await role_pools.open_fresh_pool(url, search_path)
        return fresh_pool if life is None else mortal(fresh_pool, life)

    def build_follower(fresh_pool: Pool) -> Follower:
        filling = replace(policy, is_rebuild=True)
        return Follower(fresh_pool, leases, node.node, chain, contracts, hub, filling)

    if life is not None:
        pool = mortal(pool, life)
    return Rebuilder(pool, leases, chain, contracts, open_fresh_pool, build_follower, hub, pauses)


async def order(pool: Pool, from_block: int = 0) -> int:
    async with session(pool) as connection:
        rebuild_id = await orders.order(connection, "ordered", from_block=from_block)
    assert rebuild_id is not None
    return rebuild_id


async def is_over(pool: Pool) -> bool:
    async with session(pool) as connection:
        return await orders.find_open(connection) is None


@asynccontextmanager
async def rebuilding(
    pool: Pool, url: str, node: FakeNode, contracts: Sequence[IndexedContract] = CONTRACTS
) -> AsyncIterator[Rebuilder]:
    rebuilder = a_rebuilder(pool, url, node, contracts)
    async with running(rebuilder.run()):
        yield rebuilder


async def rebuild(
    pool: Pool, url: str, node: FakeNode, contracts: Sequence[IndexedContract] = CONTRACTS
) -> None:
    """Carries out the open rebuild to its end."""
    async with rebuilding(pool, url, node, contracts):
        await until(lambda: is_over(pool))
