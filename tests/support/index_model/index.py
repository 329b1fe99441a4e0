"""Followers of a model chain on a database, whose every step is compared with the model."""

import asyncio
from contextlib import suppress

from msgspec.structs import replace

from ltzd.errors import DatabaseUnavailable, LaneLost, NodeUnavailable
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import BackfillPolicy, IndexerPolicy
from ltzd.store.database import Pool, session
from ltzd.store.indexer.rebuild import fresh_tables
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from tests.support.chain.fake_node import CONTRACTS
from tests.support.chain.rebuilding import is_over, order, rebuilding
from tests.support.index_model.chain import REWARDS, ModelChain
from tests.support.index_model.node import LogFaultsNode
from tests.support.index_model.tables import DERIVED, FACTS, differences, insert_rewards
from tests.support.rows.core import follow

NEAR = IndexerPolicy(
    poll_seconds=0.01, head_blocks=1_000, second_check_seconds=0.0, term_pause_seconds=0.02
)
FAR = replace(
    NEAR, head_blocks=2, range_blocks=20, backfill=BackfillPolicy(least_events=1, most_events=1)
)
"""Commits of 20 blocks each, however few facts they hold."""
"""Reads final blocks by ranges."""
_REBUILD_SECONDS = 60.0


class ModelIndex:
    """Two followers of one model chain on one database; every step is compared with the model."""

    def __init__(self, pool: Pool, url: str, chain: ModelChain, policy: IndexerPolicy) -> None:
        self.pool = pool
        self.chain = chain
        self.url = url
        self._policy = policy
        self._followers: list[Follower] = []
        self._in_use = 0

    async def start(self) -> None:
        async with session(self.pool) as connection:
            tables = ", ".join((*FACTS, *DERIVED, "blocks", "chains", "rewards", "leases"))
            await connection.execute(f"TRUNCATE {tables}, rebuilds CASCADE")
            await fresh_tables.drop_fresh(connection)
        await insert_rewards(self.pool, REWARDS)
        self._identity = await follow(self.pool, self.chain.node)
        self._followers = [self._a_follower(), self._a_follower()]
        await self._followers[1].begin_term()
        await self._followers[0].begin_term()

    def _a_follower(self, pool: Pool | None = None) -> Follower:
        return Follower(
            pool or self.pool,
            Leases(self.url),
            self.chain.node.node,
            self._identity,
            CONTRACTS,
            WakeupHub(""),
            self._policy,
        )

    async def happen(self, what: str, count: int) -> None:
        node = self.chain.node
        assert isinstance(node, LogFaultsNode)
        match what:
            case "mine":
                self.chain.mine(count)
            case "reorg":
                final = max(0, node.head.number - (node.final_depth or 0))
                self.chain.reorg(min(count, node.head.number - final))
            case "lag" | "double" | "omit" | "empty":
                self._fail(node, what, count)
            case "steps":
                for _ in range(count):
                    await self.step()
            case "restart":
                await self._replace_follower()
            case "die":
                await self._die_in_a_step(count)
            case "other":
                self._in_use = count
            case "rebuild":
                await self._rebuild(count)
        node.lag = min(node.lag, node.head.number)

    def _fail(self, node: LogFaultsNode, what: str, count: int) -> None:
        match what:
            case "lag":
                node.lag = min(count, node.head.number)
            case "double":
                node.doubles_logs = bool(count % 2)
            case "omit":
                node.omitted_contracts = count
            case "empty":
                node.empty_answers = count

    async def step(self) -> bool:
        """A step of the follower in use; one whose term is over begins another."""
        goes_on = await self._take_step()
        await self.compare()
        return goes_on

    async def _take_step(self) -> bool:
        try:
            return await self._followers[self._in_use].step()
        except NodeUnavailable:
            return True
        except LaneLost:
            await self._followers[self._in_use].begin_term()
            return True

    async def _replace_follower(self) -> None:
        self._followers[self._in_use] = self._a_follower()
        await self._followers[self._in_use].begin_term()
        await self.compare()

    async def _die_in_a_step(self, turns: int) -> None:
        """The process dies after some turns of its event loop, in the middle of anything."""
        step = asyncio.ensure_future(self._followers[self._in_use].step())
        for _ in range(turns):
            await asyncio.sleep(0)
            if step.done():
                break
        step.cancel()
        with suppress(asyncio.CancelledError, NodeUnavailable, LaneLost):
            await step
        await self._replace_follower()

    async def _rebuild(self, from_block: int) -> None:
        """A rebuild from this block on, beside the follower in use, until it is over.

        The node answers without faults from now on: fresh tables never hold less than the live
        ones. A comparison within the rebuild could read old tables and new ones.
        """
        node = self.chain.node
        assert isinstance(node, LogFaultsNode)
        node.lag = node.omitted_contracts = node.empty_answers = 0
        await order(self.pool, from_block)
        async with rebuilding(self.pool, self.url, node), asyncio.timeout(_REBUILD_SECONDS):
            while not await is_over(self.pool):
                await self._take_step()
                await asyncio.sleep(0.01)
        await self.compare()

    async def catch_up_over(self, pool: Pool) -> None:
        """Follows the chain over another pool, whose connections may end at any moment."""
        with suppress(DatabaseUnavailable):
            follower = self._a_follower(pool)
            await follower.begin_term()
            while await follower.step():
                pass
        await self.compare()
        await self._replace_follower()

    async def compare(self) -> None:
        different = await differences(self.pool, self.chain.states)
        assert not different, "\n".join(
            f"{name}: index, model = {sides}" for name, sides in different.items()
        )

    async def catch_up(self) -> None:
        """Begins a term first, as a process does that has the chain's lease."""
        node = self.chain.node
        await self._followers[self._in_use].begin_term()
        for _ in range(300):
            goes_on = await self.step()
            async with session(self.pool) as connection:
                cursor = await connection.fetchval("SELECT cursor_hash FROM chains")
            if not goes_on and cursor == node.head.hash:
                return
        raise AssertionError("the follower does not arrive")
