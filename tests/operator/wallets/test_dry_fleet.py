"""A fleet of relay lanes while wallets run dry, and while the base fee is above the cap."""

from collections.abc import AsyncIterator

import pytest_asyncio
from msgspec.structs import replace

from ltzd.chain.signing import Signer
from ltzd.operator.fleet.fleet import LaneFleet, SettingsWallet
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.store.database import Pool, session
from ltzd.values import Address
from tests.support.chain.fake_node import ETHER
from tests.support.chain.mint_world import POLICY, true
from tests.support.relays.fleets import FleetWorld, of_settings, serves
from tests.support.relays.lanes import OTHER_RELAYER, RELAYER, a_relay_world, row_states
from tests.support.rows.core import a_wallet
from tests.support.waiting import until

THIRD = Signer(b"\x04" * 32)
WALLETS = (RELAYER, OTHER_RELAYER, THIRD)
CAPPED = replace(POLICY, fees=FeePolicy(cap=50 * GWEI))


@pytest_asyncio.fixture
async def fleets(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[FleetWorld]:
    async with a_relay_world(database_url, pool, observer) as world:
        yield FleetWorld(world)


def named() -> list[SettingsWallet]:
    return [of_settings(f"operator.wallets[{n}]", wallet) for n, wallet in enumerate(WALLETS)]


async def ask_of_many_users(fleets: FleetWorld, users: int, each: int) -> None:
    for number in range(users):
        await fleets.world.ask(each, a_wallet(0xC0 + number))


async def all_mined(fleets: FleetWorld) -> bool:
    fleets.world.node.mine()
    return set(await row_states(fleets.world.observer)) == {"mined"}


async def reasons(fleet: LaneFleet) -> list[str | None]:
    return [lane.pause.reason for lane in fleet.lanes]  # type: ignore[attr-defined]


async def senders(fleets: FleetWorld) -> set[Address]:
    async with session(fleets.world.observer) as connection:
        rows = await connection.fetch("SELECT DISTINCT wallet FROM transactions")
    return {Address(row["wallet"]) for row in rows}


async def executed_once(fleets: FleetWorld, count: int) -> None:
    executed = fleets.world.node.executed()
    assert executed.total() == count
    assert set(executed.values()) == {1}


async def test_a_dry_wallet_holds_up_no_relay_and_works_again_once_it_is_filled(
    fleets: FleetWorld,
) -> None:
    node = fleets.world.node
    node.balances[RELAYER.address] = 0
    async with fleets.fleet(*named()) as fleet:
        await serves(fleet, *(wallet.address for wallet in WALLETS))
        await ask_of_many_users(fleets, 6, 3)
        await until(lambda: all_mined(fleets), 60.0)
        assert RELAYER.address not in await senders(fleets)

        node.balances[OTHER_RELAYER.address] = node.balances[THIRD.address] = 0
        node.balances[RELAYER.address] = ETHER
        node.mine()
        await fleets.world.some_polls()
        await ask_of_many_users(fleets, 6, 3)
        await until(lambda: all_mined(fleets), 60.0)
        assert RELAYER.address in await senders(fleets)
    await executed_once(fleets, 36)


async def test_relays_wait_while_all_wallets_are_dry(fleets: FleetWorld) -> None:
    node = fleets.world.node
    node.balances = {wallet.address: 0 for wallet in WALLETS}
    async with fleets.fleet(*named()) as fleet:
        await serves(fleet, *(wallet.address for wallet in WALLETS))
        await ask_of_many_users(fleets, 3, 2)
        await until(lambda: are_paused_for(fleet, "funds"))
        assert set(await row_states(fleets.world.observer)) == {"queued"}
        assert await senders(fleets) == set()
        node.balances[THIRD.address] = ETHER
        await until(lambda: all_mined(fleets), 60.0)
    await executed_once(fleets, 6)


async def are_paused_for(fleet: LaneFleet, reason: str) -> bool:
    return set(await reasons(fleet)) == {reason}


async def test_a_base_fee_above_the_cap_only_delays_the_relays_of_all_wallets(
    fleets: FleetWorld,
) -> None:
    node = fleets.world.node
    async with fleets.fleet(*named(), parts=fleets.parts(CAPPED)) as fleet:
        await serves(fleet, *(wallet.address for wallet in WALLETS))
        await ask_of_many_users(fleets, 6, 2)
        await until(lambda: true(len(node.pool) == 12))
        node.base_fee = 80 * GWEI
        node.mine(3)
        await until(lambda: are_paused_for(fleet, "fees"))
        await ask_of_many_users(fleets, 6, 1)
        node.mine(3)
        await fleets.world.some_polls()
        states = await row_states(fleets.world.observer)
        assert (states.count("sent"), states.count("queued")) == (12, 6)

        node.base_fee = 2 * GWEI
        await until(lambda: all_mined(fleets), 60.0)
    assert max(sent.max_fee_per_gas for sent in node.sent()) <= CAPPED.fees.cap
    await executed_once(fleets, 18)


async def test_gas_that_rises_and_falls_again_and_again_sends_each_relay_once(
    fleets: FleetWorld,
) -> None:
    node = fleets.world.node
    async with fleets.fleet(*named(), parts=fleets.parts(CAPPED)) as fleet:
        await serves(fleet, *(wallet.address for wallet in WALLETS))
        for base_fee in (30, 60, 8, 49, 90, 1):
            node.base_fee = base_fee * GWEI
            await ask_of_many_users(fleets, 3, 2)
            node.mine(2)
            await fleets.world.some_polls()
        await until(lambda: all_mined(fleets), 60.0)
    assert max(sent.max_fee_per_gas for sent in node.sent()) <= CAPPED.fees.cap
    await executed_once(fleets, 36)
