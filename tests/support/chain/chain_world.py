"""A world on a fake node of one kind of chain, which ltzd asks over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.operator.policy import LanePolicy
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.store.database import Pool
from ltzd.store.operator.leases import Leases
from tests.support.chain.chain_kinds import ChainNode, PolygonNode, served
from tests.support.chain.fake_node import CONTRACTS
from tests.support.chain.mint_world import FOLLOW, POLICY, World
from tests.support.relays.lanes import RelayWorld
from tests.support.rows.core import follow, running

FINAL_BLOCKS = 3
BY_DEPTH = replace(FOLLOW, final_depth=FINAL_BLOCKS, final_seconds=0.0, follows_deep_reorgs=False)
PATIENT = replace(POLICY, repeat_seconds=10.0, replace_after_seconds=10.0)


class ChainWorld(RelayWorld):
    """Rewards and relays on one kind of chain; `chain` is its node."""

    def __init__(self, url: str, pool: Pool, observer: Pool, chain: ChainNode) -> None:
        super().__init__(url, pool, observer, chain)
        self.chain = chain

    def policy(self, base: LanePolicy = PATIENT) -> LanePolicy:
        """A lane's policy with the settings that docs/chains.md gives for this chain."""
        min_tip = 25 * GWEI if isinstance(self.chain, PolygonNode) else GWEI // 10
        return replace(base, fees=FeePolicy(min_tip=min_tip))

    async def follower(self, policy: IndexerPolicy = BY_DEPTH) -> Follower:
        identity = await follow(self.pool, self.chain)
        return Follower(
            self.pool, Leases(self.url), self.chain.node, identity, CONTRACTS, self.wakeups, policy
        )


@asynccontextmanager
async def a_chain_world(
    chain: ChainNode, url: str, pool: Pool, observer: Pool
) -> AsyncIterator[ChainWorld]:
    chain.mine()
    if chain.final_depth is not None:
        chain.final_depth = FINAL_BLOCKS
    async with served(chain):
        world = ChainWorld(url, pool, observer, chain)
        async with running((await world.follower()).run()):
            yield world


__all__ = ["BY_DEPTH", "FINAL_BLOCKS", "PATIENT", "ChainWorld", "World", "a_chain_world"]
