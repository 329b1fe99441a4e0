"""The roles of the operator's wallets, read from real contracts."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from ltzd.chain.contracts import contract_abi
from ltzd.operator.fleet.wallet_rights import NO_FAULTS, WalletRights, WalletRightsWatch
from ltzd.operator.policy import MINT, RELAY, TREASURY
from ltzd.values import Address
from tests.support.chain.contracts import Contracts, deployed_contracts
from tests.support.waiting import until


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def contracts() -> AsyncIterator[Contracts]:
    async with deployed_contracts("anvil") as deployed:
        yield deployed


async def test_roles_and_limits_that_are_missing_or_taken_on_chain_are_found(
    contracts: Contracts,
) -> None:
    minter, relay = contracts.minter.address, contracts.relay.address
    stranger = Address(b"\x77" * 20)
    held = [(minter, MINT), (relay, RELAY), (contracts.admin.address, TREASURY)]
    watch = WalletRightsWatch(contracts.node, contracts.at, lambda: held, period_seconds=0.02)
    running = asyncio.create_task(watch.run())

    async def has(wallet: Address, rights: WalletRights) -> None:
        async def is_read() -> bool:
            assert not running.done()
            return watch.of(wallet) == rights

        await until(is_read)

    try:
        held.append((stranger, MINT))
        await has(stranger, WalletRights(("LTZ.MINTER",), mint_limit_is_zero=True))
        assert [watch.of(wallet) for wallet in (minter, relay)] == [NO_FAULTS, NO_FAULTS]
        held[-1] = (stranger, RELAY)
        roles = ("PerkNFT.RELAYER", "PerkNFT.REDEEMER", "PointsSale.RELAYER")
        await has(stranger, WalletRights((*roles, "BusinessEscrow.RELAYER")))
        held.pop()

        role = contract_abi.role_id("REDEEMER")
        await contracts.send(contracts.admin, "PerkNFT", "revokeRole", role, relay)
        await has(relay, WalletRights(("PerkNFT.REDEEMER",)))
        await contracts.send(contracts.admin, "PerkNFT", "grantRole", role, relay)
        await contracts.send(contracts.admin, "LTZ", "setMintLimit", minter, 0, 86_400)
        await has(relay, NO_FAULTS)
        await has(minter, WalletRights(mint_limit_is_zero=True))
    finally:
        running.cancel()


async def test_a_contract_that_answers_nothing_leaves_the_facts_as_they_were(
    contracts: Contracts,
) -> None:
    nowhere = dict.fromkeys(contracts.at, Address(b"\x66" * 20))
    held = [(contracts.minter.address, MINT)]
    watch = WalletRightsWatch(contracts.node, nowhere, lambda: held, period_seconds=0.02)
    running = asyncio.create_task(watch.run())
    await asyncio.sleep(0.1)
    assert not running.done()
    assert watch.of(contracts.minter.address) == NO_FAULTS
    running.cancel()
