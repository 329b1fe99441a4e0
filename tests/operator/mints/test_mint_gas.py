"""A mint that ran out of gas is never repeated as it was, and simulations have the signed limit."""

from collections.abc import Callable

import pytest

from ltzd.rules.operator.mint_gas import MOST_OUT_OF_GAS
from ltzd.values import LTZ
from tests.support.chain.fake_node import SentTransaction
from tests.support.chain.mint_world import World, true
from tests.support.rows.core import a_wallet, states, value
from tests.support.waiting import until

ROW = 96
"""Bytes of one reward in a mint's data."""


def rewards_in(data: bytes) -> int:
    return max(1, len(data) // ROW)


def dear(for_each: int) -> Callable[[bytes], int]:
    """A chain on which each reward of a mint costs so much gas; the limits allow for 40,000."""
    return lambda data: 200_000 + for_each * rewards_in(data)


def failed_mints(world: World) -> list[SentTransaction]:
    return [
        done.sent
        for block in world.node.blocks
        for done in block.transactions
        if not done.succeeded
    ]


def nothing_was_repeated(world: World) -> None:
    """A mint with the data of one that ran out of gas has more gas, or is smaller."""
    failed = failed_mints(world)
    kinds = {(sent.data, sent.gas_limit) for sent in failed}
    assert len(kinds) == len(failed)


async def finalize(world: World) -> None:
    world.node.mine(4)
    await world.some_polls()


async def all_minted_by_now(world: World) -> bool:
    world.node.mine(4)
    return await world.unminted() == 0


async def test_after_a_mint_ran_out_of_gas_its_rewards_have_smaller_mints_and_more_gas(
    world: World,
) -> None:
    """The chain charges more than every simulation says."""
    world.node.simulates_gas = False
    world.node.needed_gas = dear(60_000)
    ids = await world.queue(100)
    async with world.serving():
        await world.settled("published")
        world.node.mine()
        await world.settled("mined")
        await finalize(world)
        assert (await states(world.observer))[0] == "reverted"
        counts = "SELECT min(out_of_gas_mints) FROM rewards"
        assert await value(world.observer, counts) == 1

    async with world.serving():  # The next term remembers.
        await until(lambda: all_minted_by_now(world), 60.0)
    (failed,) = failed_mints(world)
    again = [sent for sent in world.node.sent() if sent.nonce > 0]
    assert all(rewards_in(sent.data) <= 10 for sent in again)
    assert all(
        sent.gas_limit / rewards_in(sent.data) > 2 * failed.gas_limit / 100 for sent in again
    )
    assert len(ids) == 100
    nothing_was_repeated(world)
    await world.each_minted_once()


async def test_mints_of_other_rewards_have_more_gas_after_one_ran_out(world: World) -> None:
    world.node.simulates_gas = False
    world.node.needed_gas = dear(60_000)
    await world.queue(100)
    async with world.serving():
        await world.settled("published")
        world.node.mine()
        await world.settled("mined")
        await world.queue(100)
        await world.settled("mined", "published")
        world.node.mine()
        await world.settled("mined", "mined")
    assert len(failed_mints(world)) == 1
    assert [sent.gas_limit for sent in world.node.sent() if sent.nonce < 2][-1] == 8_400_000


async def _are_unminted(world: World, count: int) -> bool:
    return await world.unminted() == count


@pytest.mark.parametrize(("for_each", "together"), [(60_000, 100), (100_000, 99), (600_000, 10)])
async def test_a_simulation_that_runs_out_of_gas_raises_the_limit_before_anything_is_spent(
    world: World, for_each: int, together: int
) -> None:
    world.node.reverts = lambda _data: True
    world.node.final_depth = 1_000  # The reverted mint's reward is not queued again here.
    await world.queue(1)
    async with world.serving():
        await world.settled("published")
        world.node.mine()
        await world.settled("mined")
        world.node.reverts = lambda _data: False
        world.node.needed_gas = dear(for_each)
        await world.queue(100)
        await until(lambda: true(len(world.node.sent()) > 1))
        world.node.mines_at_once = True
        world.node.mine()
        await until(lambda: _are_unminted(world, 1))
    signed = [sent for sent in world.node.sent() if sent.nonce == 1][-1]
    assert rewards_in(signed.data) >= together, "as many as nodes take with so much gas"
    assert signed.gas_limit in world.node.simulated_gas
    assert len(failed_mints(world)) == 1, "the mint before"


async def test_each_simulated_batch_is_signed_with_the_simulated_limit(world: World) -> None:
    world.node.bad_wallets = {a_wallet(13)}
    world.node.reverts = lambda data: rewards_in(data) == 1 and not world.node.simulated_gas
    await world.queue(1)
    async with world.serving():
        await world.settled("published")
        world.node.mine()
        await world.settled("mined")
        await world.queue(30)
        await world.settled("mined", "published")
    (signed,) = {sent for sent in world.node.sent() if sent.nonce == 1}
    assert signed.gas_limit in world.node.simulated_gas


async def test_a_reward_that_always_runs_out_of_gas_fails_and_delays_no_other(
    world: World,
) -> None:
    greedy = a_wallet(4)
    world.node.simulates_gas = False
    world.node.needed_gas = lambda data: 10**9 if bytes(greedy) in data else 0
    ids = await world.queue(8)

    async def others_are_minted() -> bool:
        world.node.mine(4)
        return await world.unminted() == 1 and bool(await world.failures())

    async with world.serving():
        await until(others_are_minted, 30.0)
    assert await world.failures() == {ids[3]: "OutOfGas"}
    assert len(failed_mints(world)) <= MOST_OUT_OF_GAS
    nothing_was_repeated(world)
    assert world.node.head.minted == 700 * LTZ
