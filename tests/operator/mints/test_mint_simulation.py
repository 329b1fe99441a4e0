"""A bad reward is marked failed and delays no other; causes outside the rewards only delay them."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.mints.batch import NO_WALLET
from ltzd.operator.mints.limit import MintLimitTracker
from ltzd.rules.operator.transactions import ReceiptSeen
from ltzd.store.database import transaction
from ltzd.store.operator import rewards
from ltzd.store.wakeups import REWARDS
from ltzd.values import LTZ, Address
from tests.support.chain.mint_world import World, true
from tests.support.rows.core import a_wallet, queue_reward, states, value
from tests.support.waiting import until

BAD = a_wallet(0xBAD)
INVALID_RECEIVER = "ERC20InvalidReceiver"


async def queue_for(world: World, wallets: Sequence[Address]) -> list[UUID]:
    async with transaction(world.observer) as connection:
        ids = [await queue_reward(connection, wallet) for wallet in wallets]
    world.wakeups.notify(REWARDS)
    return ids


async def failed(world: World, *ids: UUID) -> None:
    async def there() -> bool:
        return (await world.failures()).keys() == set(ids)

    await until(there)


async def all_but(world: World, count: int) -> None:
    """Waits until all rewards but `count` are minted."""

    async def there() -> bool:
        return await world.unminted() == count

    await until(there)


async def reverted_once(world: World) -> None:
    """Makes a mint of another reward revert, so that the lane simulates from now on."""
    world.node.reverts = lambda _data: True
    await world.queue(1)
    await world.settled("published")
    world.node.mine()
    await world.settled("mined")
    world.node.reverts = lambda _data: False
    world.node.mines_at_once = True


async def test_a_bad_reward_is_found_and_the_others_are_minted_together(world: World) -> None:
    world.node.bad_wallets.add(BAD)
    wallets = [a_wallet(number + 1) for number in range(60)]
    wallets[37] = BAD
    async with world.serving():
        await reverted_once(world)
        ids = await queue_for(world, wallets)
        await failed(world, ids[37])
        await all_but(world, 2)
        await world.settled("mined", "mined")
    assert set((await world.failures()).values()) == {INVALID_RECEIVER}
    count = await value(
        world.observer, "SELECT count(*) FROM rewards WHERE mint_block_hash IS NOT NULL"
    )
    assert count == 59


@pytest.mark.parametrize("bad", [[0], [99], [0, 1, 2, 3], list(range(0, 100, 2)), list(range(100))])
async def test_all_bad_rewards_of_a_batch_are_found(world: World, bad: list[int]) -> None:
    world.node.bad_wallets.add(BAD)
    wallets = [BAD if number in bad else a_wallet(number + 1) for number in range(100)]
    async with world.serving():
        await reverted_once(world)
        ids = await queue_for(world, wallets)
        await failed(world, *(ids[number] for number in bad))
        await all_but(world, 1 + len(bad))


async def test_a_bad_reward_costs_its_batch_one_revert_and_is_failed_once_that_is_final(
    world: World,
) -> None:
    world.node.bad_wallets.add(BAD)
    ids = await queue_for(world, [a_wallet(1), BAD, a_wallet(2)])
    async with world.serving():
        await world.settled("published")
        world.node.mine()
        await world.settled("mined")
        assert await world.failures() == {}, (
            "the reward has a transaction, which a reorg may still remove"
        )
        world.node.mine(3)
        world.node.mines_at_once = True
        await failed(world, ids[1])
        await all_but(world, 1)
        await world.settled("reverted", "mined")


@pytest.mark.parametrize("stage", ["mined", "reverted"])
async def test_a_new_term_reaches_the_same_result(world: World, stage: str) -> None:
    """The reverted mint is final when the new term begins in one case, and not in the other."""
    world.node.bad_wallets.add(BAD)
    ids = await queue_for(world, [a_wallet(1), BAD, a_wallet(2)])
    async with world.serving():
        await world.settled("published")
        world.node.mine()
        await world.settled("mined")
        if stage == "reverted":
            # LTZ refuses every mint, the probe's too, so that this term fails no reward.
            world.node.bad_wallets = {a_wallet(1), BAD, a_wallet(2), NO_WALLET}
            world.node.mine(3)
            await world.settled("reverted")
    world.node.bad_wallets = {BAD}
    world.node.mines_at_once = True
    async with world.serving():
        more = await queue_for(world, [BAD, a_wallet(3)])
        await failed(world, more[0], *([ids[1]] if stage == "reverted" else []))
        world.node.mine(3)
        await failed(world, more[0], ids[1])
        await all_but(world, 2)
    reverted = await value(
        world.observer, "SELECT count(*) FROM transactions WHERE state = 'reverted'"
    )
    assert reverted == 1, "the new term knew that a mint had reverted"


async def test_if_every_simulation_reverts_no_reward_is_failed(world: World) -> None:
    async with world.serving():
        await reverted_once(world)
        world.node.reverts = lambda _data: True
        before = world.node.simulated
        await world.queue(20)
        await until(lambda: _rose(world, before + 2 * 60))
        assert await world.failures() == {}

        world.node.reverts = lambda _data: False
        await all_but(world, 1)
    assert await world.failures() == {}


async def _rose(world: World, to: int) -> bool:
    return world.node.simulated >= to


async def test_a_lost_role_fails_no_reward_and_starts_no_search(world: World) -> None:
    async with world.serving():
        await reverted_once(world)
        world.node.is_minter = False
        before = world.node.simulated
        await world.queue(20)
        await until(lambda: _rose(world, before + 2))
        assert await world.failures() == {}
        assert await states(world.observer) == ["mined"]

        world.node.is_minter = True
        await all_but(world, 1)
    assert await world.failures() == {}


async def test_a_role_restored_during_the_search_fails_no_reward(
    world: World,
) -> None:
    """Each reward reverts alone in turn, and then all pass."""
    async with world.serving():
        await reverted_once(world)
        await world.some_polls()
        begun = world.node.simulated

        def for_a_while(_data: bytes) -> bool:
            return world.node.simulated - begun < 9

        world.node.reverts = for_a_while
        await world.queue(8)
        await all_but(world, 1)
    assert await world.failures() == {}


async def test_a_reward_above_what_the_mint_limit_has_left_is_not_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit fell after the lane had read it, so the larger reward reverts alone."""
    monkeypatch.setattr(MintLimitTracker, "select", lambda _self, batch, *_: list(batch))
    async with world.serving():
        await reverted_once(world)
        world.node.mint_filled = world.node.head.minted + 2 * LTZ
        async with transaction(world.observer) as connection:
            await queue_reward(connection, ltz=500)
            await queue_reward(connection, ltz=1)
        world.wakeups.notify(REWARDS)
        await all_but(world, 2)
        await world.some_polls()
        assert await world.failures() == {}

        world.node.mint_filled = 10**40
        await all_but(world, 1)


async def test_a_reward_whose_simulation_panics_is_not_failed(world: World) -> None:
    """A node that mixes the states of two blocks may show LTZ a time before its last mint."""
    panicked = a_wallet(0xFA)
    async with world.serving():
        await reverted_once(world)
        world.node.panicking_wallets = {panicked}
        await queue_for(world, [panicked, a_wallet(1), a_wallet(2)])
        await all_but(world, 2)
        await world.some_polls()
        assert await world.failures() == {}

        world.node.panicking_wallets = ()
        await all_but(world, 1)


async def test_a_reward_behind_a_hundred_that_panic_is_minted(
    world: World,
) -> None:
    panicked = a_wallet(0xFA)
    async with world.serving():
        await reverted_once(world)
        world.node.panicking_wallets = {panicked}
        await queue_for(world, [panicked] * 100 + [a_wallet(1)])
        await all_but(world, 101)


async def test_a_node_that_cannot_simulate_fails_no_reward(world: World) -> None:
    """The node answers all calls, or one, with an error that is not the contract's."""
    async with world.serving():
        await reverted_once(world)
        world.node.cannot_simulate = lambda _data: True
        before = world.node.simulated
        await queue_for(world, [BAD, a_wallet(1), a_wallet(2), a_wallet(3)])
        await until(lambda: _rose(world, before + 7))
        assert await world.failures() == {}

        world.node.cannot_simulate = lambda data: bytes(BAD) in data
        await all_but(world, 2)
        await world.some_polls()
        assert await world.failures() == {}
        world.node.cannot_simulate = lambda _data: False
        await all_but(world, 1)


async def test_a_requeued_failed_reward_is_minted_once_it_passes(world: World) -> None:
    world.node.bad_wallets.add(BAD)
    async with world.serving():
        await reverted_once(world)
        bad, _ = await queue_for(world, [BAD, a_wallet(1)])
        await failed(world, bad)
        await all_but(world, 2)

        world.node.bad_wallets.clear()
        async with transaction(world.observer) as connection:
            assert await rewards.retry(connection, bad)
        world.wakeups.notify(REWARDS)
        await all_but(world, 1)
    assert await world.failures() == {}


async def test_a_failed_reward_requeued_too_early_fails_again_without_a_revert(
    world: World,
) -> None:
    world.node.bad_wallets.add(BAD)
    async with world.serving():
        await reverted_once(world)
        bad, _ = await queue_for(world, [BAD, a_wallet(1)])
        await failed(world, bad)
        world.node.mine(5)  # The first revert is final, so nothing else requires simulations.
        await all_but(world, 1)
    async with transaction(world.observer) as connection:
        assert await rewards.retry(connection, bad)
    async with world.serving():
        await world.queue(1)
        await failed(world, bad)
        await all_but(world, 1)
    assert await value(world.observer, "SELECT count(*) FROM transactions WHERE NOT succeeded") == 1


async def test_a_lane_simulates_while_it_stores_that_a_mint_has_reverted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane signs its next work meanwhile."""
    world.node.bad_wallets.add(BAD)
    apply, stored = InFlightTransactions.apply, asyncio.Event()

    async def storing(in_flight: InFlightTransactions, seen: Sequence[tuple[Any, Any]]) -> None:
        is_revert = any(isinstance(observation, ReceiptSeen) for _, observation in seen)
        if is_revert and not stored.is_set():
            world.node.reverts = lambda _data: False
            bad, _ = await queue_for(world, [BAD, a_wallet(1)])
            await failed(world, bad)
            stored.set()
        await apply(in_flight, seen)

    monkeypatch.setattr(InFlightTransactions, "apply", storing)
    async with world.serving():
        world.node.reverts = lambda _data: True
        await world.queue(1)
        await world.settled("published")
        world.node.mine()
        await until(lambda: true(stored.is_set()))


async def test_a_lane_whose_term_has_ended_fails_no_reward(world: World) -> None:
    world.node.bad_wallets.add(BAD)
    async with world.serving():
        await reverted_once(world)
        world.node.mines_at_once = False
        await value(world.observer, "UPDATE lanes SET epoch = epoch + 1 RETURNING epoch")
        await queue_for(world, [BAD, a_wallet(1)])
        async with asyncio.timeout(20):
            await world.some_polls()
        # The lane's next term finds the reward, since its epoch is the newest again.
        await until(lambda: _failures(world, 1))
    assert await value(world.observer, "SELECT epoch FROM lanes") >= 3


async def _failures(world: World, count: int) -> bool:
    return len(await world.failures()) == count
