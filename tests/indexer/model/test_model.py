"""After every step the index equals a model of the chain at the cursor's block.

Random blocks with the logs of all contracts, reorgs of 1 to 64 blocks, nodes that lag, double and
omit, restarts, processes that die in the middle of a step, and two indexers on one database.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ltzd.errors import LaneLost, NodeUnavailable
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool, session
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from tests.support.chain.fake_node import CONTRACTS
from tests.support.index_model.chain import REWARDS, ModelChain
from tests.support.index_model.node import LogFaultsNode
from tests.support.index_model.tables import DERIVED, FACTS, differences, insert_rewards
from tests.support.rows.core import follow

NEAR = IndexerPolicy(
    poll_seconds=0.01, head_blocks=1_000, second_look_seconds=0.0, term_pause_seconds=0.02
)
FAR = replace(NEAR, head_blocks=2, range_blocks=20)
"""Reads final blocks by ranges."""

happenings = st.lists(
    st.one_of(
        st.tuples(st.just("mine"), st.integers(1, 12)),
        st.tuples(st.just("mine"), st.integers(60, 90)),
        st.tuples(st.just("reorg"), st.integers(1, 64)),
        st.tuples(st.sampled_from(["lag", "double", "omit", "empty"]), st.integers(0, 6)),
        st.tuples(st.just("steps"), st.integers(1, 4)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("die"), st.integers(1, 40)),
        st.tuples(st.just("other"), st.integers(0, 1)),
    ),
    max_size=20,
)


class ModelIndex:
    """Two followers of one model chain on one database; every step is compared with the model."""

    def __init__(self, pool: Pool, url: str, chain: ModelChain, policy: IndexerPolicy) -> None:
        self.pool = pool
        self.chain = chain
        self._url = url
        self._policy = policy
        self._followers: list[Follower] = []
        self._in_use = 0

    async def start(self) -> None:
        async with session(self.pool) as connection:
            tables = ", ".join((*FACTS, *DERIVED, "blocks", "chains", "rewards", "leases"))
            await connection.execute(f"TRUNCATE {tables} CASCADE")
        await insert_rewards(self.pool, REWARDS)
        self._identity = await follow(self.pool, self.chain.node)
        self._followers = [self._a_follower(), self._a_follower()]
        await self._followers[1].begin_term()
        await self._followers[0].begin_term()

    def _a_follower(self) -> Follower:
        return Follower(
            self.pool,
            Leases(self._url),
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
        node.lag = min(node.lag, node.head.number)

    def _fail(self, node: LogFaultsNode, what: str, count: int) -> None:
        match what:
            case "lag":
                node.lag = min(count, node.head.number)
            case "double":
                node.doubles_logs = bool(count % 2)
            case "omit":
                node.omitted_contracts = count if self._policy is NEAR else 0
            case "empty":
                node.empty_answers = count if self._policy is NEAR else 0

    async def step(self) -> bool:
        """A step of the follower in use; one whose term is over begins another."""
        try:
            goes_on = await self._followers[self._in_use].step()
        except NodeUnavailable:
            goes_on = True
        except LaneLost:
            await self._followers[self._in_use].begin_term()
            goes_on = True
        await self.compare()
        return goes_on

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

    async def compare(self) -> None:
        assert await differences(self.pool, self.chain.states) == {}

    async def catch_up(self) -> None:
        node = self.chain.node
        for _ in range(300):
            goes_on = await self.step()
            async with session(self.pool) as connection:
                cursor = await connection.fetchval("SELECT cursor_hash FROM chains")
            if not goes_on and cursor == node.head.hash:
                return
        raise AssertionError("the follower does not arrive")


@given(happenings, st.integers(0, 2**32), st.sampled_from([NEAR, FAR]), st.sampled_from([4, 64]))
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_the_index_equals_the_model_after_every_step(
    pool: Pool,
    database_url: str,
    happened: list[tuple[str, int]],
    seed: int,
    policy: IndexerPolicy,
    final_depth: int,
) -> None:
    node = LogFaultsNode()
    node.final_depth = final_depth
    index = ModelIndex(pool, database_url, ModelChain(node, seed), policy)
    await index.start()
    for what, count in happened:
        await index.happen(what, count)
    node.lag = node.omitted_contracts = node.empty_answers = 0
    index.chain.mine()
    await index.catch_up()


async def test_the_comparison_finds_a_changed_row(pool: Pool, database_url: str) -> None:
    """The oracle can fail: each changed table is named."""
    chain = ModelChain(LogFaultsNode(), seed=7)
    index = ModelIndex(pool, database_url, chain, NEAR)
    await index.start()
    chain.mine(80, most_operations=8)
    await index.catch_up()
    changes: dict[str, str] = {
        "balances": "UPDATE balances SET amount = amount + 1 WHERE amount > 0",
        "rewards": "UPDATE rewards SET mint_block_number = 1 WHERE mint_block_hash IS NOT NULL",
        "tokens": "UPDATE tokens SET holder = '\\x0000000000000000000000000000000000000009'",
        "items": "UPDATE items SET sold = sold + 1",
        "deals": "UPDATE deals SET state = 'split'",
        "collections": "UPDATE collections SET minted = minted + 1",
        "facts": "DELETE FROM purchases",
        "stray": "UPDATE transfers SET block_hash = sha256(block_hash)",
    }
    found: dict[str, Any] = {}
    for name, sql in changes.items():
        async with session(pool) as connection, connection.transaction():
            await connection.execute(sql)
        found = await differences(pool, chain.states)
        assert name in found
    assert set(found) >= set(changes)
