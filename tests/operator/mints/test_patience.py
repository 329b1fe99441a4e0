"""Rewards of patient brands wait for cheaper blocks, never beyond the bound, and delay nobody."""

import json
from uuid import UUID

import pytest

from ltzd import telemetry
from ltzd.rules.operator.fees import GWEI
from ltzd.store.database import transaction
from ltzd.store.operator import patience
from ltzd.store.wakeups import REWARDS
from ltzd.values import Address
from tests.support.chain.mint_world import World, true
from tests.support.rows.core import a_wallet, queue_reward, value
from tests.support.waiting import until

PATIENT, URGENT = Address(b"\xa1" * 20), Address(b"\xb2" * 20)
HOUR = 3_600


async def be_patient(world: World, seconds: object, brand: Address = PATIENT) -> None:
    """As `ltzd brand apply` with this `patience_seconds`."""
    await value(
        world.observer,
        """
        INSERT INTO brands (id, name, configuration, revision)
        VALUES ($1, 'Patient', $2::text::jsonb, nextval('brand_revisions'))
            ON CONFLICT (id) DO UPDATE
           SET configuration = excluded.configuration, revision = excluded.revision
     RETURNING revision
        """,
        brand,
        json.dumps({"patience_seconds": seconds}),
    )


async def queue(world: World, brand: Address, kind: int = 1) -> UUID:
    async with world.observer.acquire() as connection:
        reward = await queue_reward(connection, a_wallet(9), kind=kind, brand=brand)
    world.wakeups.notify(REWARDS)
    return reward


async def has_transaction(world: World, reward: UUID) -> bool:
    return bool(
        await value(
            world.observer, "SELECT transaction_id IS NOT NULL FROM rewards WHERE id = $1", reward
        )
    )


async def signed(world: World, reward: UUID) -> None:
    await until(lambda: has_transaction(world, reward), 20.0)


async def age(world: World, reward: UUID, seconds: float) -> None:
    await value(
        world.observer,
        "UPDATE rewards SET created_at = now() - make_interval(secs => $2) WHERE id = $1 "
        "RETURNING id",
        reward,
        float(seconds),
    )


def become_dear(world: World) -> None:
    """Blocks cost a gwei, and the next one fifty."""
    world.node.mine(20)
    world.node.base_fee = 50 * GWEI


def become_cheap(world: World) -> None:
    world.node.base_fee = GWEI // 2
    world.node.mine()


async def still_waits(world: World, reward: UUID) -> None:
    """Another brand's reward is minted meanwhile, which the queue has after this one."""
    await signed(world, await queue(world, URGENT))
    await world.some_polls()
    assert not await has_transaction(world, reward)


async def test_a_patient_reward_waits_for_a_cheaper_block_and_delays_nobody(world: World) -> None:
    await be_patient(world, HOUR)
    become_dear(world)
    async with world.serving():
        reward = await queue(world, PATIENT)
        await still_waits(world, reward)
        gauge = telemetry.BRANDS_HELD.labels("mint")
        await until(lambda: true(gauge._value.get() == 1.0))
        payment = await queue(world, PATIENT, kind=2)
        await signed(world, payment)
        assert not await has_transaction(world, reward)

        become_cheap(world)
        await signed(world, reward)
        world.node.mines_at_once = True
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_a_reward_at_its_bound_is_minted_at_any_fee_also_after_a_restart(
    world: World,
) -> None:
    await be_patient(world, HOUR)
    become_dear(world)
    async with world.serving():
        reward = await queue(world, PATIENT)
        await still_waits(world, reward)
    async with world.serving():
        await still_waits(world, reward)
    await age(world, reward, HOUR - 4)
    async with world.serving():
        await signed(world, reward)
        assert world.node.base_fee == 50 * GWEI


async def test_rewards_minted_without_a_transaction_hide_no_reward_at_its_bound(
    world: World,
) -> None:
    """A restore leaves such rewards: the index tells them of mints that the database knows not."""
    await be_patient(world, HOUR)
    become_dear(world)
    for _ in range(12):
        minted = await queue(world, PATIENT)
        await value(
            world.observer,
            "UPDATE rewards SET mint_block_number = 1, mint_block_hash = sha256('b'), "
            "mint_transaction_hash = sha256('t') WHERE id = $1 RETURNING id",
            minted,
        )
    reward = await queue(world, PATIENT)
    await age(world, reward, HOUR)
    async with world.serving():
        await signed(world, reward)


async def test_a_younger_reward_of_the_brand_goes_along_with_the_one_at_its_bound(
    world: World,
) -> None:
    await be_patient(world, HOUR)
    become_dear(world)
    async with world.serving():
        old, young = await queue(world, PATIENT), await queue(world, PATIENT)
        await still_waits(world, old)
        await age(world, old, HOUR)
        await signed(world, young)
        together = "SELECT count(DISTINCT transaction_id) FROM rewards WHERE id = ANY($1::uuid[])"
        assert await value(world.observer, together, [old, young]) == 1


async def test_a_clock_that_is_set_back_lets_no_reward_wait_longer(world: World) -> None:
    await be_patient(world, HOUR)
    become_dear(world)
    async with world.serving():
        reward = await queue(world, PATIENT)
        await still_waits(world, reward)
        await age(world, reward, -1_800)
        await signed(world, reward)


async def test_a_lane_counts_its_own_seconds_while_the_databases_clock_stands_still(
    world: World,
) -> None:
    await be_patient(world, 7)
    become_dear(world)
    async with world.serving():
        reward = await queue(world, PATIENT)

        async def is_signed_though_it_looks_young() -> bool:
            await age(world, reward, 0.1)
            return await has_transaction(world, reward)

        await until(is_signed_though_it_looks_young, 20.0)


@pytest.mark.parametrize("base_fee", [None, 50 * GWEI], ids=["no base fee", "no fee history"])
async def test_without_known_fees_a_patient_reward_is_minted_at_once(
    world: World, base_fee: int | None
) -> None:
    await be_patient(world, HOUR)
    world.node.has_fee_history = False
    world.node.base_fee = base_fee or 0
    world.node.mine(3)
    async with world.serving():
        await signed(world, await queue(world, PATIENT))


async def test_a_brand_that_is_patient_no_more_waits_no_more(world: World) -> None:
    await be_patient(world, HOUR)
    become_dear(world)
    async with world.serving():
        reward = await queue(world, PATIENT)
        await still_waits(world, reward)
        await be_patient(world, 0)
        await signed(world, reward)
        later = await queue(world, PATIENT)
        await signed(world, later)
        await be_patient(world, HOUR)
        await until(lambda: true(telemetry.BRANDS_HELD.labels("mint")._value.get() == 0))


async def test_a_patience_that_this_version_cannot_read_holds_up_nobody(world: World) -> None:
    unreadable = ("soon", 1.5, 10**12, -1, True, None, [60])
    for number, seconds in enumerate(unreadable):
        await be_patient(world, seconds, a_wallet(number + 1))
    async with world.serving():
        reward = await queue(world, URGENT)
        await signed(world, reward)


async def test_without_a_patient_brand_no_fee_history_is_read(world: World) -> None:
    become_dear(world)
    async with world.serving():
        await signed(world, await queue(world, PATIENT))
        histories = world.node.call_counts["eth_feeHistory"]
        blocks = world.node.call_counts["eth_maxPriorityFeePerGas"]
        assert histories == blocks


async def test_a_reward_queued_while_the_ages_are_being_read_has_no_negative_age(
    world: World,
) -> None:
    """A negative age would end the wait of its brand at once."""
    async with transaction(world.observer) as connection:
        await connection.execute("SELECT now()")
        await queue(world, PATIENT)
        ages = await patience.oldest_seconds(connection, [PATIENT])
    assert 0 <= ages[PATIENT] < HOUR
