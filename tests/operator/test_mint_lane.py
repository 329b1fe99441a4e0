"""Whatever node, database and other signers do: one nonce an intent, one mint a reward."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import pytest

from ltzd.indexer import follower as follower_module
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.operator import mint_lane, publishing, watching
from ltzd.operator.mint_lane import MintLane
from ltzd.operator.policy import LanePolicy, MintTarget
from ltzd.rules.fees import GWEI, FeePolicy
from ltzd.store import locks
from ltzd.store.database import Pool, session, transaction
from ltzd.store.signals import PUBLISHED, REWARDS, Signals
from ltzd.values import LTZ, Hash32, reward_reference
from tests.support.core import (
    MINTER,
    a_wallet,
    follow,
    queue_reward,
    running,
    states,
    value,
)
from tests.support.fake_node import CHAIN_ID, ETHER, LTZ_AT, FakeNode
from tests.support.waiting import until

POLICY = LanePolicy(max_in_flight=64, poll_seconds=0.02, repeat_seconds=0.1)
FOLLOW = IndexerPolicy(poll_seconds=0.01, follows_deep_reorgs=True)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mint_lane, "_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(publishing, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(publishing, "_LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(watching, "_MISSES_SECONDS", 0.05)
    monkeypatch.setattr(locks, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(follower_module, "_PAUSE_SECONDS", 0.02)


class World:
    """A chain, its node, the indexer, and as many lanes of one wallet as a test starts."""

    def __init__(self, url: str, pool: Pool, eyes: Pool, node: FakeNode) -> None:
        self.url = url
        self.pool = pool
        self.eyes = eyes
        """The test's own connections, which no trouble reaches."""
        self.node = node
        self.signals = Signals(url)
        self.told: list[tuple[Sequence[UUID], Hash32]] = []

    async def follow(self) -> Follower:
        chain = await follow(self.pool, self.node)
        return Follower(self.pool, self.url, self.node.node, chain, self.signals, FOLLOW)

    @asynccontextmanager
    async def lane(self, policy: LanePolicy = POLICY) -> AsyncIterator[MintLane]:
        """A lane that serves until the block ends: as abruptly as a kill."""
        lane = MintLane(
            self.pool,
            self.url,
            self.node.node,
            MINTER,
            MintTarget(CHAIN_ID, LTZ_AT),
            self.signals,
            policy,
            lambda rewards, hash_: self.told.append((rewards, hash_)),
        )
        async with running(lane.run()):
            yield lane

    @asynccontextmanager
    async def serving(self, policy: LanePolicy = POLICY) -> AsyncIterator[MintLane]:
        async with self.lane(policy) as lane:
            await until(lambda: _true(lane.is_ready))
            yield lane

    async def queue(self, count: int = 1) -> list[UUID]:
        async with transaction(self.eyes) as connection:
            ids = [await queue_reward(connection, a_wallet(n + 1)) for n in range(count)]
        self.signals.ring(REWARDS)
        return ids

    async def some_looks(self) -> None:
        """The lane has looked at the node a few times more."""
        before = self.node.asked["eth_getBlockByNumber"]
        await until(lambda: _true(self.node.asked["eth_getBlockByNumber"] > before + 30))

    async def settled(self, *wanted: str) -> None:
        async def there() -> bool:
            return await states(self.eyes) == list(wanted)

        await until(there)

    async def unminted(self) -> int:
        count: int = await value(
            self.eyes, "SELECT count(*) FROM rewards WHERE mint_block_hash IS NULL"
        )
        return count

    async def minted(self) -> None:
        async def all_of_them() -> bool:
            return await self.unminted() == 0

        await until(all_of_them, 20.0)

    async def references(self) -> list[bytes]:
        async with session(self.eyes) as connection:
            rows = await connection.fetch("SELECT id, kind, seq FROM rewards ORDER BY seq")
        return [reward_reference(row["id"], row["kind"], row["seq"]) for row in rows]

    async def each_minted_once(self) -> None:
        """On the canonical chain, under its own reference; and no nonce ever had two contents."""
        assert self.node.minted() == Counter(await self.references())
        assert all(len(contents) == 1 for contents in self.node.nonces().values())

    async def stored_bytes(self) -> list[bytes]:
        async with session(self.eyes) as connection:
            return [
                row["raw"]
                for row in await connection.fetch(
                    "SELECT raw FROM attempts JOIN transactions t ON t.id = transaction_id "
                    "ORDER BY nonce"
                )
            ]

    async def kill(self, application: str) -> None:
        await value(
            self.eyes,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE "
            "application_name LIKE $1 AND datname = current_database()",
            application,
        )


async def _true(claim: bool) -> bool:
    return claim


async def stop_of(lane: MintLane) -> str:
    """Why the lane stopped, once it has."""
    await until(lambda: _true(lane.stopped is not None))
    assert lane.stopped is not None
    return lane.stopped


@pytest.fixture
async def eyes(database_url: str) -> AsyncIterator[Pool]:
    pool = await asyncpg.create_pool(
        database_url, min_size=1, max_size=4, server_settings={"application_name": "test"}
    )
    yield pool
    pool.terminate()


@pytest.fixture
async def world(database_url: str, pool: Pool, eyes: Pool) -> AsyncIterator[World]:
    node = FakeNode()
    node.mine()
    node.final_depth = 3
    world = World(database_url, pool, eyes, node)
    async with running((await world.follow()).run()):
        yield world


# --- the plain life of a mint -----------------------------------------------------------------


async def test_rewards_are_minted_together_and_confirmed_when_final(world: World) -> None:
    world.node.mines_at_once = True
    ids = await world.queue(250)
    async with world.serving():
        await world.minted()
        await world.settled("mined", "mined", "mined")
        world.node.mine(3)
        await world.settled("confirmed", "confirmed", "confirmed")

    assert await world.references() == [
        reward_reference(reward, 1, seq) for seq, reward in enumerate(ids)
    ]
    await world.each_minted_once()
    assert len(world.node.arrived) == 3


async def test_who_waits_here_is_told_the_hash_of_his_reward(world: World) -> None:
    bell = world.signals.bell(PUBLISHED)
    async with world.serving():
        ids = await world.queue(2)
        await until(lambda: _true(bool(world.told)))
        await world.settled("published")
    ((rewards, hash_),) = world.told
    assert list(rewards) == ids
    assert hash_ in world.node.pool

    async with world.serving():
        async with asyncio.timeout(5):
            await bell.wait(30)
    assert await value(world.eyes, "SELECT published_at IS NOT NULL FROM attempts")


async def test_no_more_than_allowed_is_in_flight(world: World) -> None:
    policy = LanePolicy(max_in_flight=2, poll_seconds=0.02, repeat_seconds=10.0)
    await world.queue(500)
    async with world.serving(policy):
        await world.settled("published", "published")
        await world.some_looks()
        assert len(await states(world.eyes)) == 2

        world.node.mine()
        await world.settled("mined", "mined", "published", "published")
        world.node.mines_at_once = True
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


# --- an unreliable node -----------------------------------------------------------------------


async def test_a_lost_reply_never_spends_a_second_nonce(world: World) -> None:
    world.node.lost_replies = 2
    await world.queue()
    async with world.serving():
        await until(lambda: _true(len(world.node.arrived) >= 3))
        await world.settled("published")
        world.node.mine()
        await world.minted()
        await world.settled("mined")

    assert world.node.nonces().keys() == {0}
    await world.each_minted_once()


async def test_a_lost_request_is_sent_again(world: World) -> None:
    world.node.lost_requests = 3
    await world.queue()
    async with world.serving():
        await world.settled("published")
        world.node.mine()
        await world.minted()

    assert world.node.nonces().keys() == {0}
    await world.each_minted_once()


async def test_a_nonce_that_is_too_low_because_we_were_mined_is_mined(world: World) -> None:
    world.node.mines_at_once = True
    world.node.lost_replies = 1
    await world.queue()
    async with world.serving():
        await world.minted()
        await world.settled("mined")
        world.node.mine(3)
        await world.settled("confirmed")

    assert world.node.nonces().keys() == {0}
    await world.each_minted_once()


async def test_bytes_that_a_node_forgot_are_sent_again(world: World) -> None:
    await world.queue()
    async with world.serving():
        await world.settled("published")
        world.node.pool.clear()
        await until(lambda: _true(bool(world.node.pool)))
        world.node.mine()
        await world.minted()

    assert len(world.node.arrived) >= 2
    await world.each_minted_once()


async def test_a_refused_publication_is_tried_again_with_the_same_bytes(world: World) -> None:
    world.node.refusal = "txpool is full"
    await world.queue()
    async with world.serving():
        await until(lambda: _true(len(world.node.arrived) >= 3))
        assert await states(world.eyes) == ["signed"]
        world.node.refusal = None
        await world.settled("published")
    assert world.node.nonces().keys() == {0}
    assert len(set(world.node.arrived)) == 1


async def test_while_the_node_is_away_nothing_is_signed_and_rewards_stay_queued(
    world: World,
) -> None:
    world.node.mines_at_once = True
    async with world.serving() as lane:
        world.node.is_down = True
        await until(lambda: _true(not lane.is_ready))
        await world.queue(5)
        await world.some_looks()
        assert await states(world.eyes) == []
        assert await value(world.eyes, "SELECT count(seq) FROM rewards") == 0

        world.node.is_down = False
        await world.minted()
    await world.each_minted_once()


async def test_a_node_that_is_away_from_the_start_delays_the_term(world: World) -> None:
    world.node.is_down = True
    world.node.mines_at_once = True
    await world.queue()
    async with world.lane() as lane:
        await world.some_looks()
        assert not lane.is_serving
        assert lane.stopped is None
        world.node.is_down = False
        await world.minted()
    await world.each_minted_once()


async def test_a_node_that_falls_behind_demotes_nothing(world: World) -> None:
    world.node.mines_at_once = True
    await world.queue()
    async with world.serving():
        await world.minted()
        world.node.lag = 1
        await world.some_looks()
        assert await states(world.eyes) == ["mined"]
        world.node.lag = 0
        world.node.mine(3)
        await world.settled("confirmed")
    assert len(world.node.arrived) == 1


# --- fees and funds ---------------------------------------------------------------------------


async def test_over_the_fee_cap_rewards_wait_without_a_nonce(world: World) -> None:
    policy = LanePolicy(
        poll_seconds=0.02, repeat_seconds=0.1, fees=FeePolicy(cap=50 * GWEI, min_tip=GWEI)
    )
    world.node.base_fee = 60 * GWEI
    world.node.mine()
    async with world.lane(policy) as lane:
        await until(lambda: _true(lane.is_serving))
        await world.queue(3)
        await world.some_looks()
        assert await states(world.eyes) == []
        assert not lane.is_ready
        assert await value(world.eyes, "SELECT next_nonce FROM lanes") == 0

        world.node.base_fee = 5 * GWEI
        world.node.mine()
        await world.settled("published")
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_a_purse_that_is_too_light_pauses_the_lane_until_it_is_filled(
    world: World,
) -> None:
    world.node.balance = ETHER // 10_000
    async with world.serving():
        await world.queue(3)
        await world.some_looks()
        assert await states(world.eyes) == []

        world.node.balance = 100 * ETHER
        world.node.mine()
        await world.settled("published")


async def test_what_is_in_flight_is_reserved_before_more_is_signed(world: World) -> None:
    """Each batch may cost 4.2 million gas at 2.1 gwei at worst: the purse holds two and a half."""
    world.node.balance = 5 * 4_200_000 * 21 * GWEI // 10 // 2
    policy = LanePolicy(poll_seconds=0.02, repeat_seconds=10.0)
    await world.queue(500)
    async with world.serving(policy):
        await world.settled("published", "published")
        await world.some_looks()
        assert len(await states(world.eyes)) == 2


async def test_beyond_the_mint_limit_rewards_wait_and_nothing_reverts(world: World) -> None:
    world.node.mint_filled = 1_050 * LTZ
    world.node.mines_at_once = True
    await world.queue(30)
    async with world.serving():
        await until(lambda: _true(world.node.head.minted == 1_000 * LTZ))
        await world.some_looks()
        assert await world.unminted() == 20

        for _ in range(10):
            world.node.mint_filled += 250 * LTZ
            world.node.mine()
            await world.some_looks()
        await world.minted()
    assert await value(world.eyes, "SELECT bool_and(coalesce(succeeded, true)) FROM transactions")
    await world.each_minted_once()


async def test_rewards_that_trickle_in_never_ask_for_more_than_the_bucket_holds(
    world: World,
) -> None:
    world.node.mint_filled = 2_000 * LTZ
    world.node.mines_at_once = True
    async with world.serving():
        for _ in range(40):
            await world.queue(1)
        await until(lambda: _true(world.node.head.minted == 2_000 * LTZ))
        await world.some_looks()
    assert await value(world.eyes, "SELECT bool_and(succeeded) FROM transactions")
    assert await world.unminted() == 20


async def test_what_was_mined_since_the_bucket_was_looked_at_is_no_longer_in_it(
    world: World,
) -> None:
    world.node.mint_filled = 200 * LTZ
    async with world.serving():
        await world.queue(1)
        await world.settled("published")
        async with transaction(world.eyes) as connection:
            await queue_reward(connection, ltz=200)
        world.node.before["eth_getTransactionReceipt"] = world.node.mine
        await world.settled("mined")
        await world.some_looks()
        assert await states(world.eyes) == ["mined"], "the bucket holds 100 LTZ"

        world.node.mint_filled += 100 * LTZ
        world.node.mine()
        await world.settled("mined", "published")


# --- two lanes, and crashes -------------------------------------------------------------------


async def test_of_two_lanes_one_serves_and_the_other_takes_over(world: World) -> None:
    world.node.mines_at_once = True
    async with world.lane() as one, world.lane() as other:

        async def one_serves() -> bool:
            return one.is_ready != other.is_ready

        for _ in range(4):
            await until(one_serves)
            await world.queue(7)
            await world.kill("ltzd lock ltzd lane%")
            await world.queue(7)
            await world.minted()
    assert await value(world.eyes, "SELECT epoch FROM lanes") >= 4
    await world.each_minted_once()


async def test_a_crash_between_signing_and_publishing_loses_nothing(world: World) -> None:
    world.node.lost_requests = 1_000_000
    await world.queue(3)
    async with world.serving():
        await world.settled("signed")
    assert world.node.arrived == []
    stored = await world.stored_bytes()

    world.node.lost_requests = 0
    async with world.serving():
        await world.settled("published")
        world.node.mine()
        await world.minted()
    assert world.node.arrived[0] == stored[0]
    await world.each_minted_once()


async def test_a_crash_after_publishing_publishes_the_same_bytes_again(world: World) -> None:
    await world.queue(3)
    async with world.serving():
        await until(lambda: _true(bool(world.node.arrived)))
    async with world.serving():
        await until(lambda: _true(len(world.node.arrived) >= 2))
        await world.settled("published")
        world.node.mine()
        await world.minted()
    assert set(world.node.arrived) == set(await world.stored_bytes())
    await world.each_minted_once()


async def test_what_was_mined_while_no_lane_served_is_found(world: World) -> None:
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
    world.node.mine(5)
    async with world.serving():
        await world.settled("confirmed")
    await world.each_minted_once()


async def test_a_database_that_drops_connections_costs_time_only(world: World) -> None:
    world.node.mines_at_once = True
    async with world.lane():
        for _ in range(8):
            await world.queue(3)
            await world.kill("ltzd%")
            await world.queue(3)
        await world.minted()
    await world.each_minted_once()


# --- somebody else ----------------------------------------------------------------------------


async def test_a_nonce_that_was_used_elsewhere_stops_the_lane_at_its_start(world: World) -> None:
    async with world.serving():
        pass
    world.node.use_nonce(MINTER.address)
    await world.queue()
    async with world.lane() as lane:
        assert "something else signs with its key" in await stop_of(lane)
        assert not lane.is_serving
    assert await states(world.eyes) == []


@pytest.mark.parametrize("seq", [0, 255, 511])
async def test_a_reference_that_was_not_given_out_stops_the_lane_at_its_start(
    world: World, seq: int
) -> None:
    async with world.serving():
        pass
    world.node.mine()
    world.node.head.used[seq] = bytes(32)
    await world.queue()
    async with world.lane() as lane:
        assert "the database is an old copy" in await stop_of(lane)
    assert await states(world.eyes) == []


@pytest.mark.parametrize(("used", "first"), [(0, 0), (256, 256), (257, 512)])
async def test_a_new_database_on_a_used_ltz_starts_above_every_used_reference(
    world: World, used: int, first: int
) -> None:
    world.node.head.used.update({seq: bytes(32) for seq in range(used)})
    world.node.mines_at_once = True
    await world.queue(2)
    async with world.serving():
        await world.minted()
    async with session(world.eyes) as connection:
        rows = await connection.fetch("SELECT seq FROM rewards ORDER BY seq")
    assert [row["seq"] for row in rows] == [first, first + 1]


async def test_a_new_database_starts_at_the_wallets_nonce(world: World) -> None:
    for _ in range(3):
        world.node.use_nonce(MINTER.address)
    world.node.mines_at_once = True
    await world.queue()
    async with world.serving():
        await world.minted()
    assert world.node.nonces().keys() == {3}


async def test_a_nonce_that_somebody_else_took_gives_its_rewards_back_once_it_is_final(
    world: World,
) -> None:
    """Not before: the block of the foreign transaction may go away again."""
    world.node.lost_requests = 1_000_000
    await world.queue(2)
    async with world.serving():
        await world.settled("signed")
        world.node.use_nonce(MINTER.address)
        world.node.lost_requests = 0
        await world.some_looks()
        assert await states(world.eyes) == ["signed"]

        world.node.mine(3)
        await world.settled("displaced", "published")
        world.node.mine()
        await world.minted()
    assert [seq.hex()[-2:] for seq in await world.references()] == ["00", "01"]
    await world.each_minted_once()


async def test_a_reference_that_somebody_else_used_stops_the_lane_once_it_is_final(
    world: World,
) -> None:
    async with world.serving() as lane:
        world.node.mine()
        world.node.head.used[0] = b"\xee" * 32
        await world.queue(2)
        await world.settled("published")
        world.node.mine()
        await world.settled("mined")
        assert lane.is_serving
        world.node.mine(3)
        assert "1 of its rewards have no mint on chain" in await stop_of(lane)
    assert await states(world.eyes) == ["mined"]
    assert await world.unminted() == 1


# --- reverts and reorgs -----------------------------------------------------------------------


async def test_a_mint_that_reverted_is_minted_again_under_its_references_once_final(
    world: World,
) -> None:
    world.node.reverts = lambda _data: True
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
        world.node.mine()
        await world.settled("mined")
        tied = await value(world.eyes, "SELECT count(transaction_id) FROM rewards")
        assert tied == 3, "the block may go away again, and then the mint may succeed"
        before = await world.references()

        world.node.mine(3)
        await world.settled("reverted")
        await world.some_looks()
        assert await states(world.eyes) == ["reverted"], "what would revert is not sent"
        assert len(set(world.node.arrived)) == 1

        world.node.reverts = lambda _data: False
        await world.settled("reverted", "published")
        world.node.mine()
        await world.minted()
    assert await world.references() == before
    await world.each_minted_once()


async def test_after_a_revert_each_batch_is_simulated_until_one_passes(world: World) -> None:
    world.node.reverts = lambda _data: True
    await world.queue(1)
    async with world.serving():
        await world.settled("published")
        world.node.mine()
        await world.settled("mined")
        await world.queue(1)
        await world.some_looks()
        assert await states(world.eyes) == ["mined"]

        world.node.reverts = lambda _data: False
        world.node.mines_at_once = True
        await world.settled("mined", "mined")
        simulated = world.node.simulated
        assert simulated > 0
        await world.queue(1)
        await world.settled("mined", "mined", "mined")
        assert world.node.simulated == simulated


async def test_a_reward_above_the_mint_limit_waits_and_holds_nobody_up(world: World) -> None:
    await world.queue(2)
    async with transaction(world.eyes) as connection:
        await connection.execute("UPDATE rewards SET ltz = 500 WHERE position = 1")
    world.node.mint_capacity = 400 * LTZ
    world.node.mines_at_once = True
    async with world.serving():
        await world.settled("mined")
        await world.some_looks()
        assert await states(world.eyes) == ["mined"]

        world.node.mint_capacity = 10**30
        world.node.mine()
        await world.settled("mined", "mined")


async def test_an_empty_bucket_is_waited_for_without_a_nonce(world: World) -> None:
    world.node.mint_filled = 0
    world.node.mines_at_once = True
    await world.queue(3)
    async with world.serving():
        await world.some_looks()
        assert await states(world.eyes) == []

        world.node.mint_filled = 10**30
        world.node.mine()
        await world.settled("mined")


@pytest.mark.parametrize("forgets", [False, True], ids=["in the pool", "forgotten"])
@pytest.mark.parametrize("depth", [1, 3])
async def test_a_reorg_that_drops_a_mint_publishes_the_same_bytes_again(
    world: World, forgets: bool, depth: int
) -> None:
    world.node.final_depth = 50
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
        world.node.mine(depth)
        await world.minted()
        await world.settled("mined")

        world.node.reorg(depth, forgets_transactions=forgets)
        await world.settled("published")
        assert await world.unminted() == 3
        await until(lambda: _true(bool(world.node.pool)))
        world.node.mine()
        await world.minted()
        await world.settled("mined")
    assert set(world.node.arrived) == set(await world.stored_bytes())
    await world.each_minted_once()


async def test_a_mint_that_moved_to_another_block_is_followed_there(world: World) -> None:
    world.node.final_depth = 50
    await world.queue()
    async with world.serving():
        await world.settled("published")
        first = world.node.mine()
        await world.minted()
        world.node.forget_blocks(1)
        world.node.mine()

        async def moved() -> bool:
            placed = await value(world.eyes, "SELECT block_hash FROM transactions")
            minted = await value(world.eyes, "SELECT mint_block_hash FROM rewards")
            return bool(placed == minted == world.node.head.hash != first.hash)

        await until(moved)
    assert len(world.node.arrived) == 1
    await world.each_minted_once()


async def test_a_reorg_below_finality_is_survived_where_it_is_followed(world: World) -> None:
    world.node.final_depth = 1
    await world.queue(2)
    async with world.serving():
        await world.settled("published")
        world.node.mine(4)
        await world.settled("confirmed")

        world.node.reorg(4, forgets_transactions=True)
        await world.settled("published")
        await until(lambda: _true(bool(world.node.pool)))
        world.node.mine()
        await world.minted()
    assert len(set(world.node.arrived)) == 1
    await world.each_minted_once()


# --- anything may happen ----------------------------------------------------------------------


class Trouble:
    """What strikes a world, at random."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._node = world.node
        self._chance = chance
        self._kinds: list[Callable[[], Awaitable[None]]] = [
            self._rewards,
            self._rewards,
            self._rewards,
            self._blocks,
            self._blocks,
            self._lost_publications,
            self._a_reorg,
            self._a_forgetful_pool,
            self._dead_connections,
            self._an_absent_node,
            self._a_blind_node,
        ]

    async def strike(self) -> None:
        await self._chance.choice(self._kinds)()
        await value(self._world.eyes, "SELECT pg_sleep($1)", self._chance.random() / 20)

    def end(self) -> None:
        self._node.is_down = False
        self._node.lost_replies = self._node.lost_requests = 0

    async def _rewards(self) -> None:
        await self._world.queue(self._chance.randint(1, 30))

    async def _blocks(self) -> None:
        self._node.mine(self._chance.randint(1, 3))

    async def _lost_publications(self) -> None:
        self._node.lost_replies = self._chance.randint(0, 3)
        self._node.lost_requests = self._chance.randint(0, 3)

    async def _a_reorg(self) -> None:
        depth = min(self._chance.randint(1, 6), self._node.head.number - 1)
        self._node.reorg(depth, forgets_transactions=self._chance.random() < 0.5)

    async def _a_forgetful_pool(self) -> None:
        self._node.pool.clear()

    async def _dead_connections(self) -> None:
        await self._world.kill(self._chance.choice(["ltzd%", "ltzd lock%", "ltzd"]))

    async def _an_absent_node(self) -> None:
        self._node.is_down = not self._node.is_down

    async def _a_blind_node(self) -> None:
        self._node.empty_answers = 2


@pytest.mark.parametrize("seed", [1, 2, 3, None])
async def test_whatever_happens_each_reward_is_minted_once(world: World, seed: int | None) -> None:
    seed = random.randrange(10**9) if seed is None else seed
    print(f"seed {seed}")
    world.node.final_depth = 8
    trouble = Trouble(world, random.Random(seed))
    async with world.lane(), world.lane():
        for _ in range(60):
            await trouble.strike()
        trouble.end()

        async def all_minted() -> bool:
            world.node.mine()
            return await world.unminted() == 0

        await until(all_minted, 20.0)
    await world.each_minted_once()
