"""Each intent has one nonce and each reward one mint, despite faults of node and database."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.operator.policy import LanePolicy
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.store.database import session, transaction
from ltzd.store.indexer import chains
from ltzd.store.wakeups import BLOCKS, PUBLISHED
from ltzd.values import LTZ, reward_reference
from tests.support.chain.fake_node import CHAIN_ID, ETHER
from tests.support.chain.mint_world import PAUSES, POLICY, World, stop_of, true
from tests.support.rows.core import MINTER, a_wallet, queue_reward, states, value
from tests.support.waiting import until

# --- mints without faults ---------------------------------------------------------------------


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


@pytest.mark.parametrize("sums_runs", [True, False], ids=["this_build", "former_build"])
async def test_rewards_of_one_wallet_are_minted_side_by_side_each_once(
    world: World, sums_runs: bool
) -> None:
    world.node.sums_runs = sums_runs
    world.node.mines_at_once = True
    wallets = [a_wallet(1 + number % 3) for number in range(30)]
    async with transaction(world.observer) as connection:
        for wallet in wallets:
            await queue_reward(connection, wallet, 7)
    async with world.serving():
        await world.minted()
    await world.each_minted_once()
    balances = await value(
        world.observer, "SELECT array_agg(amount ORDER BY wallet)::text[] FROM balances"
    )
    assert balances == [str(70 * LTZ)] * 3
    transfers = await value(world.observer, "SELECT count(*) FROM transfers")
    assert transfers == (3 if sums_runs else 30)


async def test_a_waiting_caller_gets_the_hash_of_its_reward(world: World) -> None:
    wakeup = world.wakeups.subscribe(PUBLISHED)
    async with world.serving():
        ids = await world.queue(2)
        await until(lambda: true(bool(world.published)))
        await world.settled("published")
    ((rewards, hash_),) = world.published
    assert list(rewards) == ids
    assert hash_ in world.node.pool

    async with world.serving():
        async with asyncio.timeout(20):
            await wakeup.wait(30)
    assert await value(world.observer, "SELECT published_at IS NOT NULL FROM attempts")


async def test_transactions_in_flight_stay_within_the_limit(world: World) -> None:
    policy = LanePolicy(max_in_flight=2, poll_seconds=0.02, repeat_seconds=10.0, pauses=PAUSES)
    await world.queue(500)
    async with world.serving(policy):
        await world.settled("published", "published")
        await world.some_polls()
        assert len(await states(world.observer)) == 2

        world.node.mine()
        await world.settled("mined", "mined", "published", "published")
        world.node.mines_at_once = True
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_ages_do_not_depend_on_how_two_clocks_differ(world: World) -> None:
    await world.observer.execute(
        "ALTER TABLE transactions ALTER created_at SET DEFAULT now() - interval '1 hour'"
    )  # As a database whose clock is an hour behind this machine's.
    gauge = telemetry.OLDEST_UNCONFIRMED_SECONDS
    await world.queue()
    async with world.serving():
        await world.settled("published")
        await world.some_polls()
        assert 0 <= gauge.labels("mint")._value.get() < 600
    async with world.serving():
        await world.some_polls()
        age = gauge.labels("mint")._value.get()
        assert 3600 <= age < 4200, "a later term reads the age from the database"


# --- an unreliable node -----------------------------------------------------------------------


async def test_a_lost_reply_never_spends_a_second_nonce(world: World) -> None:
    world.node.lost_replies = 2
    await world.queue()
    async with world.serving():
        await until(lambda: true(len(world.node.arrived) >= 3))
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


async def test_a_nonce_refused_as_too_low_after_its_transaction_was_mined_counts_as_mined(
    world: World,
) -> None:
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


async def test_bytes_that_a_node_dropped_are_published_again(world: World) -> None:
    await world.queue()
    async with world.serving():
        await world.settled("published")
        world.node.pool.clear()
        await until(lambda: true(bool(world.node.pool)))
        world.node.mine()
        await world.minted()

    assert len(world.node.arrived) >= 2
    await world.each_minted_once()


async def test_a_refused_publication_is_tried_again_with_the_same_bytes(world: World) -> None:
    world.node.refusal = "txpool is full"
    await world.queue()
    async with world.serving():
        await until(lambda: true(len(world.node.arrived) >= 3))
        assert await states(world.observer) == ["signed"]
        world.node.refusal = None
        await world.settled("published")
    assert world.node.nonces().keys() == {0}
    assert len(set(world.node.arrived)) == 1


async def test_while_the_node_is_unreachable_nothing_is_signed_and_rewards_stay_queued(
    world: World,
) -> None:
    world.node.mines_at_once = True
    async with world.serving() as lane:
        world.node.is_down = True
        await until(lambda: true(not lane.is_ready))
        await world.queue(5)
        await world.some_polls()
        assert await states(world.observer) == []
        assert await value(world.observer, "SELECT count(seq) FROM rewards") == 0

        world.node.is_down = False
        await world.minted()
    await world.each_minted_once()


async def test_a_node_unreachable_from_the_start_delays_the_term(world: World) -> None:
    world.node.is_down = True
    world.node.mines_at_once = True
    await world.queue()
    async with world.lane() as lane:
        await world.some_polls()
        assert not lane.is_serving
        assert lane.stopped is None
        world.node.is_down = False
        await world.minted()
    await world.each_minted_once()


async def test_a_node_that_falls_behind_changes_no_mined_transaction(world: World) -> None:
    world.node.mines_at_once = True
    await world.queue()
    async with world.serving():
        await world.minted()
        await world.settled("mined")
        world.node.lag = 1
        await world.some_polls()
        assert await states(world.observer) == ["mined"]
        world.node.lag = 0
        world.node.mine(3)
        await world.settled("confirmed")
    assert len(world.node.arrived) == 1


# --- fees and funds ---------------------------------------------------------------------------


async def test_above_the_fee_cap_rewards_wait_without_a_nonce(world: World) -> None:
    policy = LanePolicy(
        poll_seconds=0.02,
        repeat_seconds=0.1,
        fees=FeePolicy(cap=50 * GWEI, min_tip=GWEI),
        pauses=PAUSES,
    )
    world.node.base_fee = 60 * GWEI
    world.node.mine()
    async with world.lane(policy) as lane:
        await until(lambda: true(lane.is_serving))
        await world.queue(3)
        await world.some_polls()
        assert await states(world.observer) == []
        assert not lane.is_ready
        assert await value(world.observer, "SELECT next_nonce FROM lanes") == 0

        world.node.base_fee = 5 * GWEI
        world.node.mine()
        await world.settled("published")
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_a_balance_that_is_too_low_pauses_the_lane_until_it_is_funded(
    world: World,
) -> None:
    world.node.balance = ETHER // 10_000
    async with world.serving():
        await world.queue(3)
        await world.some_polls()
        assert await states(world.observer) == []

        world.node.balance = 100 * ETHER
        world.node.mine()
        await world.settled("published")


async def test_the_cost_of_transactions_in_flight_is_reserved_before_more_are_signed(
    world: World,
) -> None:
    """A batch may cost 4.2 million gas at 2.1 gwei: the balance covers two and a half batches."""
    world.node.balance = 5 * 4_200_000 * 21 * GWEI // 10 // 2
    policy = LanePolicy(poll_seconds=0.02, repeat_seconds=10.0, pauses=PAUSES)
    await world.queue(500)
    async with world.serving(policy):
        await world.settled("published", "published")
        await world.some_polls()
        assert len(await states(world.observer)) == 2


async def test_beyond_the_mint_limit_rewards_wait_and_nothing_reverts(world: World) -> None:
    world.node.mint_filled = 1_050 * LTZ
    world.node.mines_at_once = True
    await world.queue(30)
    async with world.serving():
        await until(lambda: true(world.node.head.minted == 1_000 * LTZ))
        await world.some_polls()
        assert await world.unminted() == 20

        for _ in range(10):
            world.node.mint_filled += 250 * LTZ
            world.node.mine()
            await world.some_polls()
        await world.minted()
    assert await value(
        world.observer, "SELECT bool_and(coalesce(succeeded, true)) FROM transactions"
    )
    await world.each_minted_once()


async def test_a_stream_of_rewards_never_mints_more_than_the_mint_limit_has_left(
    world: World,
) -> None:
    world.node.mint_filled = 2_000 * LTZ
    world.node.mines_at_once = True
    async with world.serving():
        for _ in range(40):
            await world.queue(1)
        await until(lambda: true(world.node.head.minted == 2_000 * LTZ))
        await world.some_polls()
    assert await value(world.observer, "SELECT bool_and(succeeded) FROM transactions")
    assert await world.unminted() == 20


async def test_mints_since_the_last_read_of_the_mint_limit_are_subtracted(
    world: World,
) -> None:
    world.node.mint_filled = 200 * LTZ
    async with world.serving():
        await world.queue(1)
        await world.settled("published")
        async with transaction(world.observer) as connection:
            await queue_reward(connection, ltz=200)
        world.node.before["eth_getTransactionReceipt"] = world.node.mine
        await world.settled("mined")
        await world.some_polls()
        assert await states(world.observer) == ["mined"], (
            "the mint limit has more than 100 LTZ left"
        )

        world.node.mint_filled += 100 * LTZ
        world.node.mine()
        await world.settled("mined", "published")


# --- two lanes, and crashes -------------------------------------------------------------------


async def test_one_of_two_lanes_serves_and_the_other_takes_over(world: World) -> None:
    world.node.mines_at_once = True
    async with world.lane() as first, world.lane() as second:

        async def one_serves() -> bool:
            return first.is_ready != second.is_ready

        for _ in range(4):
            await until(one_serves)
            await world.queue(7)
            await world.kill("ltzd leases")
            await world.queue(7)
            await world.minted()
    assert await value(world.observer, "SELECT epoch FROM lanes") >= 4
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
        await until(lambda: true(bool(world.node.arrived)))
    async with world.serving():
        await until(lambda: true(len(world.node.arrived) >= 2))
        await world.settled("published")
        world.node.mine()
        await world.minted()
    assert set(world.node.arrived) == set(await world.stored_bytes())
    await world.each_minted_once()


async def test_mints_mined_while_no_lane_served_are_found(world: World) -> None:
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


# --- foreign transactions --------------------------------------------------------------------


async def test_a_nonce_that_was_used_elsewhere_stops_the_lane_at_its_start(world: World) -> None:
    async with world.serving():
        pass
    world.node.use_nonce(MINTER)
    await world.queue()
    async with world.lane() as lane:
        assert "something else signs with its key" in await stop_of(lane)
        assert not lane.is_serving
    assert await states(world.observer) == []


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
    assert await states(world.observer) == []


@pytest.mark.parametrize(("used", "first"), [(0, 0), (256, 256), (257, 512)])
async def test_a_new_database_on_a_used_ltz_starts_above_every_used_reference(
    world: World, used: int, first: int
) -> None:
    world.node.head.used.update({seq: bytes(32) for seq in range(used)})
    world.node.mines_at_once = True
    await world.queue(2)
    async with world.serving():
        await world.minted()
    async with session(world.observer) as connection:
        rows = await connection.fetch("SELECT seq FROM rewards ORDER BY seq")
    assert [row["seq"] for row in rows] == [first, first + 1]


async def test_a_nonce_used_elsewhere_requeues_its_rewards_once_final(
    world: World,
) -> None:
    """Requeues the rewards at finality only: a reorg may remove the foreign transaction.

    The lane signs nothing more until a person has adopted the wallet.
    """
    world.node.lost_requests = 1_000_000
    await world.queue(2)
    async with world.serving() as lane:
        await world.settled("signed")
        world.node.use_nonce(MINTER)
        world.node.lost_requests = 0
        await world.some_polls()
        assert await states(world.observer) == ["signed"]

        world.node.mine(3)
        await world.settled("displaced")
        assert "Something else signs with the key" in await stop_of(lane)
        await world.adopt()
        await world.settled("displaced", "published")
        world.node.mine()
        await world.minted()
        assert lane.stopped is None
    assert [seq.hex()[-2:] for seq in await world.references()] == ["00", "01"]
    await world.each_minted_once()


async def test_a_reference_used_elsewhere_stops_the_lane_once_final(
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
    assert await states(world.observer) == ["mined"]
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
        tied = await value(world.observer, "SELECT count(transaction_id) FROM rewards")
        assert tied == 3, "a reorg may remove the block, and then the mint may succeed"
        before = await world.references()

        world.node.mine(3)
        await world.settled("reverted")
        await world.some_polls()
        assert await states(world.observer) == ["reverted"], (
            "a mint that would revert was published"
        )
        assert len(set(world.node.arrived)) == 1

        world.node.mines_at_once = True
        world.node.reverts = lambda _data: False
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
        await world.some_polls()
        assert await states(world.observer) == ["mined"]

        world.node.reverts = lambda _data: False
        world.node.mines_at_once = True
        await world.settled("mined", "mined")
        simulated = world.node.simulated
        assert simulated > 0
        await world.queue(1)
        await world.settled("mined", "mined", "mined")
        assert world.node.simulated == simulated


async def test_a_reward_above_the_mint_limit_waits_and_delays_no_other(world: World) -> None:
    await world.queue(2)
    async with transaction(world.observer) as connection:
        await connection.execute("UPDATE rewards SET ltz = 500 WHERE position = 1")
    world.node.mint_capacity = 400 * LTZ
    world.node.mines_at_once = True
    async with world.serving():
        await world.settled("mined")
        await world.some_polls()
        assert await states(world.observer) == ["mined"]

        world.node.mint_capacity = 10**30
        world.node.mine()
        await world.settled("mined", "mined")


async def test_rewards_wait_without_a_nonce_while_the_mint_limit_is_used_up(world: World) -> None:
    world.node.mint_filled = 0
    world.node.mines_at_once = True
    await world.queue(3)
    async with world.serving():
        await world.some_polls()
        assert await states(world.observer) == []

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
        await until(lambda: true(bool(world.node.pool)))
        world.node.mine()
        await world.minted()
        await world.settled("mined")
    assert set(world.node.arrived) == set(await world.stored_bytes())
    await world.each_minted_once()


async def test_a_mint_that_moved_to_another_block_is_recorded_in_that_block(world: World) -> None:
    world.node.final_depth = 50
    await world.queue()
    async with world.serving():
        await world.settled("published")
        first = world.node.mine()
        await world.minted()
        world.node.forget_blocks(1)
        world.node.mine()

        async def moved() -> bool:
            placed = await value(world.observer, "SELECT block_hash FROM transactions")
            minted = await value(world.observer, "SELECT mint_block_hash FROM rewards")
            return bool(placed == minted == world.node.head.hash != first.hash)

        await until(moved)
    assert len(world.node.arrived) == 1
    await world.each_minted_once()


async def test_a_lane_that_follows_reorgs_below_finality_mints_each_reward_once(
    world: World,
) -> None:
    world.node.final_depth = 1
    await world.queue(2)
    async with world.serving():
        await world.settled("published")
        world.node.mine(4)
        await world.settled("confirmed")

        world.node.reorg(4, forgets_transactions=True)
        await world.settled("published")
        await until(lambda: true(bool(world.node.pool)))
        world.node.mine()
        await world.minted()
    assert len(set(world.node.arrived)) == 1
    await world.each_minted_once()


# --- random faults ----------------------------------------------------------------------------


class Trouble:
    """Random faults."""

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
            self._a_dropped_pool,
            self._dead_connections,
            self._an_unreachable_node,
            self._empty_answers,
            self._other_fees,
            self._a_node_that_refuses_low_prices,
        ]

    async def strike(self) -> None:
        await self._chance.choice(self._kinds)()
        await value(self._world.observer, "SELECT pg_sleep($1)", self._chance.random() / 20)

    def end(self) -> None:
        self._node.is_down = self._node.refuses_cheap = False
        self._node.base_fee = GWEI
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

    async def _a_dropped_pool(self) -> None:
        self._node.pool.clear()

    async def _dead_connections(self) -> None:
        await self._world.kill(self._chance.choice(["ltzd%", "ltzd leases", "ltzd"]))

    async def _an_unreachable_node(self) -> None:
        self._node.is_down = not self._node.is_down

    async def _empty_answers(self) -> None:
        self._node.unindexed_answers = 2

    async def _other_fees(self) -> None:
        self._node.base_fee = self._chance.choice([1, 1, 5, 20, 90, 150]) * GWEI

    async def _a_node_that_refuses_low_prices(self) -> None:
        self._node.refuses_cheap = not self._node.refuses_cheap


@pytest.mark.parametrize("seed", [1, 2, 3, None])
async def test_under_random_faults_each_reward_is_minted_once(
    world: World, seed: int | None
) -> None:
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

        await until(all_minted, 60.0)
    assert all(sent.max_fee_per_gas <= FeePolicy().cap for sent in world.node.sent())
    await world.each_minted_once()


async def test_an_idle_lane_reads_no_fees_for_each_block_and_mints_at_once_all_the_same(
    world: World,
) -> None:
    """Its polls, and its rest, are longer than this test."""
    async with world.serving(replace(POLICY, poll_seconds=60.0)):
        read = world.node.call_counts["eth_feeHistory"]
        for _ in range(5):
            world.node.mine()
            world.wakeups.notify(BLOCKS)
            await asyncio.sleep(0)
        # A block that the indexer reads while the mint is in flight is polled for, rightly.
        await until(lambda: has_indexed(world, world.node.head.number))
        await world.queue()
        await until(lambda: true(len(world.published) == 1))
        assert world.node.call_counts["eth_feeHistory"] == read > 0

        world.node.mine()
        world.wakeups.notify(BLOCKS)
        await until(lambda: true(world.node.call_counts["eth_feeHistory"] > read))


async def has_indexed(world: World, number: int) -> bool:
    async with session(world.observer) as connection:
        return (await chains.cursor(connection, CHAIN_ID)).number == number
