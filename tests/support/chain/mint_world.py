"""A chain, a fake node, the indexer and mint lanes of one wallet, for tests of the operator.

    from tests.support.chain.mint_world import World, observer, world  # in a conftest

A lane ends as abruptly as in a killed process; pauses are short.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import pytest_asyncio

from ltzd.chain.signing import WalletSigner
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.operator import restoring
from ltzd.operator.lane import WalletLane
from ltzd.operator.mints.lane import MintLane
from ltzd.operator.policy import (
    MINT,
    InProcessHooks,
    LanePauses,
    LanePolicy,
    MintTarget,
    PauseBackoff,
)
from ltzd.operator.restoring import Applied
from ltzd.store import database
from ltzd.store.database import Pool, open_pool, session, transaction
from ltzd.store.operator.leases import LeasePolicy, Leases
from ltzd.store.wakeups import REWARDS, WakeupHub
from ltzd.values import Address, Hash32, reward_reference
from tests.support.chain.fake_node import CHAIN_ID, CONTRACTS, LTZ_AT, FakeNode
from tests.support.rows.core import MINTER, a_wallet, follow, queue_reward, running, states, value
from tests.support.waiting import until

PAUSES = LanePauses(
    between_terms=0.02,
    missing_receipt=0.05,
    comparing=0.3,
    wallet_watch=0.1,
    publication=PauseBackoff(0.01, 0.05),
    publication_record=0.0,
    simulation=PauseBackoff(0.1, 0.2),
    without_node=1.0,
)
POLICY = LanePolicy(
    max_in_flight=64,
    poll_seconds=0.02,
    linger_seconds=0.0,
    batch_linger_seconds=0.0,
    repeat_seconds=0.1,
    replace_after_seconds=0.2,
    pauses=PAUSES,
)
FOLLOW = IndexerPolicy(poll_seconds=0.01, follows_deep_reorgs=True, term_pause_seconds=0.02)


class World:
    """A fake node with its chain, the indexer, and the lanes that a test starts."""

    def __init__(self, url: str, pool: Pool, observer: Pool, node: FakeNode) -> None:
        self.url = url
        self.pool = pool
        self.observer = observer
        """The test's own connections, which injected faults do not reach."""
        self.node = node
        self.wakeups = WakeupHub(url)
        self.signer: WalletSigner = MINTER
        self.leases = LeasePolicy()
        self.published: list[tuple[Sequence[UUID], Hash32]] = []
        self.on_the_way = 0
        """The number of rewards that the lanes expect."""

    async def follow(self) -> Follower:
        chain = await follow(self.pool, self.node)
        return Follower(
            self.pool, Leases(self.url), self.node.node, chain, CONTRACTS, self.wakeups, FOLLOW
        )

    @asynccontextmanager
    async def lane(self, policy: LanePolicy = POLICY) -> AsyncIterator[MintLane]:
        """Runs a lane until the context ends, and then cancels it like a killed process."""
        lane = MintLane(
            self.pool,
            Leases(self.url, self.leases),
            self.node.node,
            self.signer,
            MintTarget(CHAIN_ID, LTZ_AT),
            self.wakeups,
            policy,
            InProcessHooks(self._on_published, lambda: self.on_the_way),
        )
        async with running(lane.run()):
            yield lane

    def _on_published(self, rewards: Sequence[UUID], hash_: Hash32) -> None:
        self.published.append((rewards, hash_))

    @asynccontextmanager
    async def serving(self, policy: LanePolicy = POLICY) -> AsyncIterator[MintLane]:
        async with self.lane(policy) as lane:
            await until(lambda: true(lane.is_ready))
            yield lane

    async def queue(self, count: int = 1) -> list[UUID]:
        async with transaction(self.observer) as connection:
            ids = [await queue_reward(connection, a_wallet(n + 1)) for n in range(count)]
        self.wakeups.notify(REWARDS)
        return ids

    async def adopt(self, wallet: Address = MINTER.address, kind: str = MINT) -> int | None:
        """As `ltzd lane adopt`; returns the seq to which the counter of references was raised."""
        connection = await database.connect(self.url, "test adopt")
        try:
            nodes = [("node", self.node.node)]
            chain, lane = await restoring.compare_wallet(connection, nodes, wallet)
            return await restoring.adopt(connection, nodes, chain, lane, kind)
        finally:
            await connection.close()

    async def restore(self, nodes: Sequence[FakeNode] = (), silent: Sequence[str] = ()) -> Applied:
        """As `ltzd restore apply` with these nodes of the settings; by default, with the node."""
        named = [(f"node {n}", each.node) for n, each in enumerate(nodes or [self.node])]
        connection = await database.connect(self.url, "test restore")
        try:
            compared = await restoring.compare(connection, named, silent)
            return await restoring.apply(connection, compared)
        finally:
            await connection.close()

    async def some_polls(self) -> None:
        """Waits until the lane has asked the node a few times more."""
        before = self.node.call_counts["eth_getBlockByNumber"]
        await until(lambda: true(self.node.call_counts["eth_getBlockByNumber"] > before + 30))

    async def settled(self, *wanted: str) -> None:
        async def there() -> bool:
            return await states(self.observer) == list(wanted)

        await until(there)

    async def unminted(self) -> int:
        count: int = await value(
            self.observer, "SELECT count(*) FROM rewards WHERE mint_block_hash IS NULL"
        )
        return count

    async def minted(self) -> None:
        async def all_of_them() -> bool:
            return await self.unminted() == 0

        await until(all_of_them, 60.0)

    async def failures(self) -> dict[UUID, str]:
        """The failed rewards, with the reasons."""
        async with session(self.observer) as connection:
            rows = await connection.fetch(
                "SELECT id, failure FROM rewards WHERE failed_at IS NOT NULL"
            )
        return {row["id"]: row["failure"] for row in rows}

    async def references(self) -> list[bytes]:
        async with session(self.observer) as connection:
            rows = await connection.fetch("SELECT id, kind, seq FROM rewards ORDER BY seq")
        return [reward_reference(row["id"], row["kind"], row["seq"]) for row in rows]

    async def each_minted_once(self) -> None:
        """Each reward is minted once on the canonical chain, and no nonce ever had two contents."""
        assert self.node.minted() == Counter(await self.references())
        assert all(len(contents) == 1 for contents in self.node.nonces().values())

    async def stored_bytes(self) -> list[bytes]:
        async with session(self.observer) as connection:
            return [
                row["raw"]
                for row in await connection.fetch(
                    "SELECT raw FROM attempts JOIN transactions t ON t.id = transaction_id "
                    "ORDER BY nonce"
                )
            ]

    async def lose_the_last_commits(self) -> None:
        """Undoes all that the lane has written, as a promoted replica without it would."""
        async with session(self.observer) as connection, connection.transaction():
            await connection.execute("UPDATE rewards SET transaction_id = NULL, seq = NULL")
            await connection.execute("DELETE FROM attempts")
            await connection.execute("DELETE FROM transactions")
            await connection.execute(
                "UPDATE lanes SET next_nonce = 0, next_seq = NULL, end_seq = NULL"
            )
            await connection.execute("UPDATE reference_counters SET next_seq = 0")

    async def kill(self, application: str) -> None:
        await value(
            self.observer,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE "
            "application_name LIKE $1 AND datname = current_database()",
            application,
        )


async def true(claim: bool) -> bool:
    return claim


async def stop_of(lane: WalletLane) -> str:
    """Waits until the lane has stopped, and returns the reason."""
    await until(lambda: true(lane.stopped is not None))
    assert lane.stopped is not None
    return lane.stopped


@pytest_asyncio.fixture
async def observer(database_url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database_url, name="test", size=4)
    yield pool
    pool.terminate()


@pytest_asyncio.fixture
async def world(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[World]:
    node = FakeNode()
    node.mine()
    node.final_depth = 3
    world = World(database_url, pool, observer, node)
    async with running((await world.follow()).run()):
        yield world
