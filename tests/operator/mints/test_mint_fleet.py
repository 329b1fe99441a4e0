"""Several mint wallets share one queue: each reward is minted once, whichever process dies."""

import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from ltzd.chain.signing import Signer
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator.leases import LeasePolicy
from ltzd.store.wakeups import REWARDS
from ltzd.values import LTZ, Address
from tests.support.chain.fake_node import _MINT_LIMIT, FakeNode
from tests.support.chain.mint_fleet import (
    OTHER_MINTER,
    SELDOM,
    THIRD_MINTER,
    WALLETS,
    Fuse,
    each_minted_once,
    lanes,
    process,
    rewards_by_wallet,
)
from tests.support.chain.mint_world import World, true
from tests.support.chain.signers import UnreliableSigner
from tests.support.rows.core import MINTER, a_wallet, queue_reward, running, value
from tests.support.waiting import until

MAINNET_BLOCK_GAS = 30_000_000
PATIENT = LeasePolicy(length=30.0, margin=5.0, answer=10.0, connect=20.0)
"""A term that is lost here is lost to another lane, and not to a busy machine."""


class LimitedNode(FakeNode):
    """A node whose LTZ has a mint limit for each wallet."""

    def __init__(self) -> None:
        super().__init__()
        self.capacities: dict[bytes, int] = {}

    def _call(self, call: dict[str, str], tag: object = "latest") -> str:
        data = bytes.fromhex(call["data"][2:])
        capacity = self.capacities.get(data[16:36])
        if data[:4] != _MINT_LIMIT or capacity is None:
            return super()._call(call, tag)  # type: ignore[arg-type]
        words = capacity, self.mint_window_seconds, capacity
        return "0x" + b"".join(word.to_bytes(32, "big") for word in words).hex()


@pytest_asyncio.fixture
async def world(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[World]:
    node = LimitedNode()
    node.mine()
    node.final_depth = 3
    node.mines_at_once = True
    world = World(database_url, pool, observer, node)
    world.leases = PATIENT
    async with running((await world.follow()).run()):
        yield world


async def queue_many(world: World, count: int, brand: int = 1, ltz: int = 100) -> None:
    async with transaction(world.observer) as connection:
        await connection.execute(
            """
            INSERT INTO rewards (id, kind, brand_id, wallet, ltz)
            SELECT gen_random_uuid(), 1, $2, $3, $4 FROM generate_series(1, $1::int)
            """,
            count,
            bytes([brand]) * 20,
            a_wallet(7),
            ltz,
        )
    world.wakeups.notify(REWARDS)


async def epochs(world: World) -> set[int]:
    async with session(world.observer) as connection:
        return {row[0] for row in await connection.fetch("SELECT epoch FROM lanes")}


# --- one queue ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
async def test_lanes_of_one_process_share_the_queue_and_end_no_term(
    world: World, count: int
) -> None:
    with capture_logs() as logs:
        async with lanes(world, WALLETS[:count]):
            await queue_many(world, 2_000)
            await world.minted()
        assert await epochs(world) == {1}
    assert not [log for log in logs if log["event"] in {"lane.term_over", "mint.rewards_taken"}]
    assert len(await rewards_by_wallet(world)) == count, "each wallet has minted"
    await each_minted_once(world)


async def test_each_word_of_references_is_one_lanes(world: World) -> None:
    async with lanes(world):
        await queue_many(world, 1_500)
        await world.minted()
    owners = await value(
        world.observer,
        """
        SELECT max(wallets) FROM (
          SELECT count(DISTINCT t.wallet) AS wallets
            FROM rewards r JOIN transactions t ON t.id = r.transaction_id
           GROUP BY r.seq / 256) AS words
        """,
    )
    assert owners == 1
    span = "SELECT max(seq) - min(seq) FROM rewards r WHERE transaction_id = t.id"
    assert await value(world.observer, f"SELECT max(({span})) FROM transactions t") > 255, (
        "a batch of a hundred spans two words of its lane"
    )


async def test_two_processes_share_the_queue_and_end_no_term(world: World) -> None:
    async with process(world) as other, lanes(world, [MINTER]), lanes(other, [OTHER_MINTER]):
        for _ in range(5):
            await queue_many(world, 300)
            await queue_many(other, 40, brand=2)
            await world.minted()
    assert await epochs(world) == {1}
    assert (await rewards_by_wallet(world)).keys() == {MINTER.address, OTHER_MINTER.address}
    await each_minted_once(world)


async def test_a_brand_with_thousands_of_rewards_delays_no_other_with_two_lanes(
    world: World,
) -> None:
    """Both lanes together fill two blocks at most, so that the next batches come soon."""
    world.node.block_gas_limit = MAINNET_BLOCK_GAS
    world.node.mines_at_once = False
    world.node.mine()
    async with lanes(world):
        await queue_many(world, 2_500)
        in_flight = "SELECT coalesce(sum(gas_limit), 0) FROM transactions WHERE state <> 'mined'"
        await until(lambda: _is_more(world, in_flight, MAINNET_BLOCK_GAS))
        for _ in range(3):
            world.node.mine()
            await world.some_polls()
            assert await value(world.observer, in_flight) <= 2 * MAINNET_BLOCK_GAS
        async with transaction(world.observer) as connection:
            late = await queue_reward(connection, brand=Address(b"\x02" * 20))
        world.wakeups.notify(REWARDS)
        for _ in range(4):
            world.node.mine()
            await world.some_polls()
        minted = "SELECT mint_block_hash IS NOT NULL FROM rewards WHERE id = $1"
        assert await value(world.observer, minted, late)


async def _is_more(world: World, sql: str, than: int) -> bool:
    return bool(await value(world.observer, sql) > than)


# --- mint limits --------------------------------------------------------------------------------


async def test_a_reward_above_one_wallets_limit_is_left_to_a_wallet_that_can_hold_it(
    world: World,
) -> None:
    assert isinstance(world.node, LimitedNode)
    world.node.capacities = {MINTER.address: 100 * LTZ, OTHER_MINTER.address: 10_000 * LTZ}
    above = "SELECT count(*) FROM rewards WHERE above_limit"
    async with lanes(world, [MINTER]):
        async with lanes(world, [OTHER_MINTER]):
            for _ in range(5):
                await queue_many(world, 1, ltz=5_000)
                await queue_many(world, 3, ltz=10)
            await world.minted()
            assert await value(world.observer, above) == 0
        await value(
            world.observer,
            "UPDATE lanes SET served_at = now() - interval '1 hour' WHERE wallet = $1 RETURNING 1",
            OTHER_MINTER.address,
        )
        await queue_many(world, 1, ltz=5_000)
        await until(lambda: _is_more(world, above, 0), 60.0)
        async with lanes(world, [OTHER_MINTER]):
            await world.minted()
    await each_minted_once(world)


async def test_a_lane_that_saves_for_a_large_reward_lets_the_other_lane_mint_it(
    world: World,
) -> None:
    """Both wait for the same reward; the one whose limit is raised mints it, and both go on."""
    world.node.mint_capacity = 1_000 * LTZ
    world.node.mint_filled = 500 * LTZ
    async with lanes(world):
        await queue_many(world, 1, brand=1, ltz=900)
        await world.some_polls()
        await queue_many(world, 2, brand=2, ltz=100)
        await until(lambda: _is_less(world, 2))
        world.node.mint_filled = 10**30
        world.node.mine()
        await world.minted()
        await queue_many(world, 20)
        await world.minted()
    await each_minted_once(world)


async def _is_less(world: World, than: int) -> bool:
    return await world.unminted() < than


# --- deaths -------------------------------------------------------------------------------------


async def test_no_crash_between_two_steps_mints_a_reward_twice_or_loses_it(world: World) -> None:
    """One process dies at each packet that its signing sends to the database, or is answered."""
    blown = 0
    async with Fuse(world.url).listening() as fuse:
        for answers_only in (False, True):
            for packets in range(12):
                fuse.restore()
                async with process(world, fuse.url) as dying, lanes(dying, [MINTER], SELDOM):
                    fuse.arm(packets, answers_only=answers_only)
                    await queue_many(dying, 120)
                    await until(lambda: _is_done(world, fuse))
                blown += fuse.is_blown
                if packets % 2:
                    async with lanes(world, [OTHER_MINTER]):
                        await until(lambda: _is_all_signed(world), 60.0)
    assert blown > 16
    async with lanes(world):
        await world.minted()
    await each_minted_once(world)


async def _is_done(world: World, fuse: Fuse) -> bool:
    return fuse.is_blown or await world.unminted() == 0


async def _is_all_signed(world: World) -> bool:
    unsigned = "SELECT count(*) FROM rewards WHERE transaction_id IS NULL"
    return bool(await value(world.observer, unsigned) == 0)


@pytest.mark.parametrize("seed", [1, 2])
async def test_with_lanes_of_three_wallets_killed_at_random_each_reward_is_minted_once(
    world: World, seed: int
) -> None:
    chance = random.Random(seed)
    async with lanes(world, [MINTER]):
        for _ in range(5):
            async with process(world) as other, lanes(other, chance.sample(WALLETS[1:], 1)):
                await queue_many(world, chance.randint(1, 400), brand=chance.randint(1, 3))
                other.wakeups.notify(REWARDS)
                await value(world.observer, "SELECT pg_sleep($1)", chance.random() / 10)
            await queue_many(world, chance.randint(1, 50))
        async with process(world) as last, lanes(last, [OTHER_MINTER, THIRD_MINTER]):
            await world.minted()
    alive = "SELECT epoch FROM lanes WHERE wallet = $1"
    assert await value(world.observer, alive, MINTER.address) == 1, "the survivor lost no term"
    await each_minted_once(world)


async def test_a_frozen_lane_keeps_its_claims_while_it_has_its_lease_and_no_longer(
    world: World,
) -> None:
    """The frozen lane wakes up with a signature of rewards that the other lane has minted."""
    frozen = UnreliableSigner(Signer(b"\x0d" * 32))
    frozen.holds = lambda _transaction: True
    with capture_logs() as logs:
        async with process(world) as other, lanes(world, [MINTER]), lanes(other, [frozen]):
            await until(lambda: _are_served(world, 2))
            async with transaction(world.observer) as connection:
                await queue_reward(connection)
            other.wakeups.notify(REWARDS)
            await until(lambda: true(frozen.requests > 0))
            await queue_many(world, 50)
            await until(lambda: _is_less(world, 2))
            await world.some_polls()
            assert await world.unminted() == 1

            async def is_taken() -> bool:
                await value(
                    world.observer,
                    "UPDATE leases SET expires_at = now() WHERE name LIKE $1 RETURNING 1",
                    f"%{OTHER_MINTER.address.hex()}",
                )
                world.wakeups.notify(REWARDS)
                return await world.unminted() == 0

            await until(is_taken)
            frozen.holds = lambda _transaction: False
            await until(lambda: true(any(e["event"] == "mint.rewards_taken" for e in logs)))
            await queue_many(other, 10)
            await world.minted()
    await each_minted_once(world)


async def _are_served(world: World, count: int) -> bool:
    leased = "SELECT count(*) FROM leases WHERE name LIKE 'lane/%'"
    return bool(await value(world.observer, leased) == count)


async def test_a_lane_that_is_alone_writes_no_claims(world: World) -> None:
    async with session(world.observer) as connection:
        await connection.execute("ALTER TABLE rewards ADD CHECK (claimed_by IS NULL)")
    async with lanes(world, [MINTER]):
        await queue_many(world, 150)
        await world.minted()
    assert await epochs(world) == {1}
    await each_minted_once(world)


async def test_a_lane_that_begins_beside_one_that_signs_mints_no_reward_twice(
    world: World,
) -> None:
    """The lane that was alone has claimed nothing, so storing the mint decides."""
    slow = UnreliableSigner(Signer(b"\x0d" * 32))
    slow.holds = lambda _transaction: True
    with capture_logs() as logs:
        async with process(world) as other, lanes(other, [slow]):
            await queue_many(other, 30)
            await until(lambda: true(slow.requests > 0))
            async with lanes(world, [MINTER]):
                await world.minted()
                slow.holds = lambda _transaction: False
                await until(lambda: true(any(e["event"] == "mint.rewards_taken" for e in logs)))
    assert (await rewards_by_wallet(world)).keys() == {MINTER.address}
    await each_minted_once(world)


async def test_a_lane_that_cannot_sign_gives_its_claims_back(world: World) -> None:
    away = UnreliableSigner(Signer(b"\x0d" * 32))
    away.is_away = True
    async with process(world) as other, lanes(other, [away]):
        await queue_many(other, 30)
        await until(lambda: true(away.requests > 0))
        async with lanes(world, [MINTER]):
            await world.minted()
        assert await value(world.observer, "SELECT count(claimed_by) FROM rewards") == 0
    assert (await rewards_by_wallet(world)).keys() == {MINTER.address}
    await each_minted_once(world)


async def test_a_lane_that_cannot_sign_leaves_to_another_what_it_has_claimed_beside_it(
    world: World,
) -> None:
    """The lane has its lease all the while, so its claims would bind every other lane."""
    away, comes_back = UnreliableSigner(Signer(b"\x0d" * 32)), UnreliableSigner(MINTER)
    away.is_away = comes_back.is_away = True
    async with process(world) as other, lanes(other, [away]), lanes(world, [comes_back]):
        await queue_many(world, 250)
        await until(lambda: true(min(away.requests, comes_back.requests) > 0))
        comes_back.is_away = False
        await world.minted()
    assert (await rewards_by_wallet(world)).keys() == {MINTER.address}
    await each_minted_once(world)
