"""Relays are simulated with wallets that will send them, and permits may name wallets that sign."""

import pytest

from ltzd.actions.relayer.wallets import RelayWallets
from ltzd.chain.relayer.calls import decode_relay
from ltzd.chain.signing import Signer
from ltzd.errors import Unavailable, ValidationFailed
from ltzd.store.database import Pool, session
from ltzd.store.operator import lanes, wallets
from ltzd.store.operator.wallets import WITHOUT_ROLE, WalletState
from ltzd.values import Address, checksummed
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.relays.allowed_calls import (
    CONTRACTS,
    OPERATORS,
    STRANGER,
    Chain,
    a_permit,
    an_ask,
    transfer_from,
)
from tests.support.relays.lanes import OTHER_RELAYER, RELAYER, a_relay_lane
from tests.support.rows.core import value

ACTIVE, DRAINING, RETIRED = WalletState


async def with_wallets(
    pool: Pool, first: WalletState = ACTIVE, second: WalletState = ACTIVE
) -> RelayWallets:
    """Both relay wallets are served, and in these states."""
    for signer, state in ((RELAYER, first), (OTHER_RELAYER, second)):
        await a_relay_lane(pool, signer)
        async with session(pool) as connection:
            await wallets.add(connection, CHAIN_ID, signer.address, "relay")
            await wallets.set_state(connection, CHAIN_ID, signer.address, state)
    return RelayWallets(pool, CHAIN_ID)


async def pause(pool: Pool, *signers: Signer) -> None:
    async with session(pool) as connection:
        for signer in signers:
            await wallets.set_paused(connection, CHAIN_ID, signer.address, "a person")


async def test_all_served_wallets_are_offered_the_busiest_first(pool: Pool) -> None:
    relay_wallets = await with_wallets(pool)
    await value(pool, "UPDATE lanes SET next_nonce = 7 WHERE wallet = $1", OTHER_RELAYER.address)
    both = [OTHER_RELAYER.address, RELAYER.address]
    assert await relay_wallets.offered() == both
    assert await relay_wallets.accepted() == both
    assert await relay_wallets.sender() == OTHER_RELAYER.address


async def test_a_draining_wallet_is_not_offered_and_still_accepted(pool: Pool) -> None:
    relay_wallets = await with_wallets(pool, DRAINING)
    assert await relay_wallets.offered() == [OTHER_RELAYER.address]
    assert set(await relay_wallets.accepted()) == {RELAYER.address, OTHER_RELAYER.address}
    assert await relay_wallets.sender() == OTHER_RELAYER.address


async def test_a_retired_wallet_and_a_wallet_that_is_not_served_are_not_accepted(
    pool: Pool,
) -> None:
    relay_wallets = await with_wallets(pool, RETIRED)
    assert await relay_wallets.accepted() == [OTHER_RELAYER.address]
    await value(pool, "UPDATE lanes SET served_at = now() - interval '61 seconds'")
    assert await RelayWallets(pool, CHAIN_ID).accepted() == []


async def test_a_paused_wallet_simulates_only_if_no_other_wallet_can(pool: Pool) -> None:
    relay_wallets = await with_wallets(pool)
    await pause(pool, RELAYER)
    assert await relay_wallets.offered() == [OTHER_RELAYER.address]
    assert await relay_wallets.sender() == OTHER_RELAYER.address

    await pause(pool, OTHER_RELAYER)
    relay_wallets = RelayWallets(pool, CHAIN_ID)
    assert await relay_wallets.offered() == []
    assert await relay_wallets.sender() in {RELAYER.address, OTHER_RELAYER.address}


async def lose_roles(pool: Pool, signer: Signer) -> None:
    lane = await a_relay_lane(pool, signer)
    async with session(pool) as connection:
        await lanes.report_working(connection, lane, WITHOUT_ROLE)


async def test_a_wallet_without_its_roles_is_accepted_and_simulates_no_call(pool: Pool) -> None:
    relay_wallets = await with_wallets(pool)
    await value(pool, "UPDATE lanes SET next_nonce = 7 WHERE wallet = $1", RELAYER.address)
    await lose_roles(pool, RELAYER)
    assert await relay_wallets.offered() == [OTHER_RELAYER.address]
    assert set(await relay_wallets.accepted()) == {RELAYER.address, OTHER_RELAYER.address}
    assert await relay_wallets.sender() == OTHER_RELAYER.address

    await lose_roles(pool, OTHER_RELAYER)
    with pytest.raises(Unavailable, match="lacks a role"):
        await RelayWallets(pool, CHAIN_ID).sender()


@pytest.mark.parametrize("state", [DRAINING, RETIRED])
async def test_without_a_wallet_that_takes_new_work_no_call_is_simulated(
    pool: Pool, state: WalletState
) -> None:
    relay_wallets = await with_wallets(pool, state, state)
    with pytest.raises(Unavailable, match="No process"):
        await relay_wallets.sender()


def test_a_permit_may_name_a_draining_wallet_and_a_refusal_names_the_offered_ones() -> None:
    offered = OPERATORS[:1]

    def planned(spender: Address) -> Address | None:
        ask = an_ask("LTZ", transfer_from(), permit=a_permit(spender))
        relay = decode_relay(ask, CONTRACTS)
        return relay.plan(Chain().answers(relay), OPERATORS, offered).wallet

    assert [planned(wallet) for wallet in OPERATORS] == list(OPERATORS)
    with pytest.raises(ValidationFailed) as refused:
        planned(STRANGER.address)
    assert refused.value.details["allowed"] == [checksummed(wallet) for wallet in offered]
