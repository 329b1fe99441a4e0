"""Deployments on both dev chains: one killed at any step continues; each contract exists once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.chain.contracts import artifacts, runtime_code
from ltzd.chain.deployment.plan import DeployedContract, Deployment, MintLimit
from ltzd.chain.node.node import Node
from ltzd.chain.node.refusals import Refusal, RefusalKind
from ltzd.chain.node.rpc import Rpc, RpcCall, RpcError
from ltzd.chain.signing import UnsignedTransaction
from ltzd.dev.services.chain import DevChain, Kind, find_anvil
from ltzd.errors import FileRejected, Misconfigured, NodeUnavailable
from ltzd.values import LTZ, ZERO_ADDRESS, Address, hex_of
from tests.support.chain.chains import a_chain, anvil_chain, tester_chain
from tests.support.chain.deployments import (
    GUARDIAN,
    LIMIT,
    MINTER,
    REGISTRAR,
    RELAYER,
    SENDS,
    ContradictoryRpc,
    KilledError,
    KilledRpc,
    Site,
    terms_of,
)
from tests.support.chain.faulty_node import lies
from tests.support.chain.faulty_node.faults import Faults
from tests.support.chain.faulty_node.node import a_faulty_node
from tests.support.waiting import until

__all__ = ["anvil_chain", "tester_chain"]

OTHER = Address(b"\x0e" * 20)


class RefusingRpc(Rpc):
    """Has served enough requests when it is asked for MCOPY."""

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        answers = await super().batch(calls)
        for place, call in enumerate(calls):
            if "0x5f5f5f5e00" in str(call):
                refusal = Refusal(RefusalKind.RATE)
                answers[place] = RpcError(-32005, "limit exceeded", refusal=refusal)
        return answers


@pytest.fixture(params=["tester_chain", "anvil_chain"])
def chain(request: pytest.FixtureRequest) -> DevChain:
    chain: DevChain = request.getfixturevalue(request.param)
    return chain


@pytest_asyncio.fixture
async def site(chain: DevChain) -> Site:
    funded = Site(chain.rpc_url)
    await funded.fund()
    return funded


@pytest_asyncio.fixture
async def anvil_site(anvil_chain: DevChain) -> Site:
    funded = Site(anvil_chain.rpc_url)
    await funded.fund()
    return funded


async def assert_complete(site: Site) -> None:
    deployment = site.written
    assert deployment is not None
    async with Rpc(site.rpc_url) as rpc:
        for contract in artifacts.CONTRACTS:
            at = deployment.address(contract)
            code = await Node(rpc).code(at)
            ltz = deployment.address("LTZ")
            assert runtime_code.matches_source(contract, code, deployment.chain_id, at, ltz)
    for contract in artifacts.CONTRACTS[1:]:
        assert await site.ask(contract, "ltz") == deployment.address("LTZ")
        assert await site.holds(contract, "RELAYER", RELAYER)
        assert await site.holds(contract, "REGISTRAR", REGISTRAR)
        assert not await site.holds(contract, "REGISTRAR", RELAYER)
    assert await site.holds("PerkNFT", "REDEEMER", RELAYER)
    assert await site.holds("LTZ", "MINTER", MINTER)
    assert await site.ask("LTZ", "mintLimit", MINTER) == LIMIT.capacity
    for contract in artifacts.CONTRACTS:
        assert await site.holds(contract, "GUARDIAN", GUARDIAN)
        assert await site.ask(contract, "defaultAdmin") == site.signer.address
        assert await site.ask(contract, "defaultAdminDelay") == 60


@pytest.mark.parametrize("sends_at_once", [False, True])
async def test_four_contracts_and_their_roles_take_eight_transactions(
    site: Site, sends_at_once: bool
) -> None:
    await site.run(sends_at_once=sends_at_once)

    await assert_complete(site)
    assert await site.nonce() == SENDS
    assert len(site.reported) == SENDS


async def test_a_second_run_sends_nothing(site: Site) -> None:
    first = await site.run()

    assert await site.run() == first
    assert await site.nonce() == SENDS


async def test_nothing_is_sent_to_a_chain_without_the_instructions_of_cancun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anvil = tmp_path / "anvil"
    anvil.write_text(f'#!/bin/sh\nexec "{find_anvil()}" --hardfork shanghai "$@"\n')
    anvil.chmod(0o755)
    monkeypatch.setenv("LTZD_ANVIL", str(anvil))
    async with a_chain("anvil") as chain:
        site = Site(chain.rpc_url)
        await site.fund()

        for action in (site.run, site.preview):
            with pytest.raises(Misconfigured, match="lacks instructions of Cancun"):
                await action()

        assert await site.nonce() == 0


async def test_a_node_that_refuses_the_question_has_not_answered_it(anvil_site: Site) -> None:
    await anvil_site.run(RefusingRpc(anvil_site.rpc_url))

    assert await anvil_site.nonce() == SENDS


async def test_a_view_that_reverts_between_two_states_is_read_again(anvil_site: Site) -> None:
    first = await anvil_site.run()
    contradictory = ContradictoryRpc(anvil_site.rpc_url, reverts=3)

    assert await anvil_site.run(contradictory) == first

    assert contradictory.reverts == 0
    assert await anvil_site.nonce() == SENDS


async def test_nodes_of_different_heights_behind_one_url_are_asked_again(site: Site) -> None:
    first = await site.run()
    async with a_faulty_node(site.rpc_url) as node:
        node.faults = Faults(behind=3, alternates=True)

        assert await site.run(Rpc(node.url)) == first

    assert await site.nonce() == SENDS


async def test_a_node_that_never_holds_its_head_is_told(site: Site) -> None:
    await site.run()
    async with a_faulty_node(site.rpc_url) as node:
        node.faults = Faults(lies=(lies.future_head(1000),))
        with pytest.raises(NodeUnavailable, match=r"does not hold block \d+, which it has named"):
            await site.run(Rpc(node.url))


@pytest.mark.parametrize("is_delivered", [False, True])
async def test_a_deployment_killed_at_any_transaction_continues_to_the_same_result(
    anvil_chain: DevChain, is_delivered: bool
) -> None:
    for moment in range(1, SENDS + 1):
        site = Site(anvil_chain.rpc_url)
        await site.fund()
        with pytest.raises(KilledError):
            await site.run(KilledRpc(site.rpc_url, moment, is_delivered=is_delivered))
        written = site.written

        await site.run()

        assert site.written == written
        assert await site.nonce() == SENDS
        await assert_complete(site)


async def test_a_deployment_killed_on_the_tester_chain_continues(tester_chain: DevChain) -> None:
    site = Site(tester_chain.rpc_url)
    await site.fund()
    for moment in (1, 2, 1, 3):
        with pytest.raises(KilledError):
            await site.run(KilledRpc(site.rpc_url, moment, is_delivered=True))

    await site.run()

    assert await site.nonce() == SENDS
    await assert_complete(site)


async def test_a_deployment_killed_before_its_first_write_has_sent_nothing(
    anvil_site: Site,
) -> None:
    class Unwritten(Site):
        def remember(self, deployment: Deployment) -> None:
            raise KilledError

    with pytest.raises(KilledError):
        await Unwritten(anvil_site.rpc_url, secret=anvil_site.secret).run()

    assert await anvil_site.nonce() == 0


@pytest.mark.parametrize("kind", ["tester", "anvil"])
async def test_pending_transactions_of_an_earlier_run_are_not_repeated(kind: Kind) -> None:
    """The first run is killed while all its transactions are pending."""
    async with a_chain(kind) as chain, Rpc(chain.rpc_url) as rpc:
        site = Site(chain.rpc_url)
        await site.fund()
        await rpc.call("evm_setAutomine", False)
        with pytest.raises(KilledError):
            await site.run(KilledRpc(site.rpc_url, 6, is_delivered=True), sends_at_once=True)
        assert await site.nonce() == 0

        second = asyncio.create_task(site.run(sends_at_once=True))
        await until(lambda: _pending(rpc, site))
        await rpc.call("evm_setAutomine", True)
        await rpc.call("evm_mine")
        await second

        assert await site.nonce() == SENDS
        await assert_complete(site)


async def _pending(rpc: Rpc, site: Site) -> bool:
    return await Node(rpc).nonce(site.signer.address, "pending") == SENDS


async def test_a_nonce_used_elsewhere_moves_a_contract_to_another_address(site: Site) -> None:
    with pytest.raises(KilledError):
        await site.run(KilledRpc(site.rpc_url, 2))
    async with Rpc(site.rpc_url) as rpc:
        await _spend_a_nonce(rpc, site)

    await site.run()

    await assert_complete(site)
    assert await site.nonce() == SENDS + 1


async def _spend_a_nonce(rpc: Rpc, site: Site) -> None:
    node = Node(rpc)
    nonce = await node.nonce(site.signer.address)
    transfer = UnsignedTransaction(
        await node.chain_id(), nonce, 10**9, 10**11, 21_000, OTHER, 1, b""
    )
    await node.publish(site.signer.sign(transfer).raw)
    await until(lambda: _has_nonce(node, site, nonce + 1))


async def _has_nonce(node: Node, site: Site, nonce: int) -> bool:
    return await node.nonce(site.signer.address) == nonce


async def test_changed_terms_add_the_missing_roles(anvil_site: Site) -> None:
    await anvil_site.run()
    terms = terms_of(
        anvil_site.signer.address,
        relayers=(RELAYER, OTHER),
        mint_limit=MintLimit(5 * LTZ, 60),
    )

    await anvil_site.run(terms=terms)

    assert await anvil_site.holds("PointsSale", "RELAYER", OTHER)
    assert await anvil_site.holds("PointsSale", "RELAYER", RELAYER)
    assert await anvil_site.ask("LTZ", "mintLimit", MINTER) == 5 * LTZ
    assert await anvil_site.nonce() == SENDS + 4


async def test_the_admin_role_is_offered_and_the_offer_not_repeated(anvil_site: Site) -> None:
    terms = terms_of(anvil_site.signer.address, heir=OTHER)

    await anvil_site.run(terms=terms)
    await anvil_site.run(terms=terms)

    assert await anvil_site.nonce() == SENDS
    for contract in artifacts.CONTRACTS:
        assert await anvil_site.ask(contract, "defaultAdmin") == anvil_site.signer.address
        assert await anvil_site.ask(contract, "pendingDefaultAdmin") == OTHER


async def test_a_deployer_without_the_admin_role_gets_the_list_of_the_admins_steps(
    anvil_site: Site,
) -> None:
    await anvil_site.run()
    thief = Site(anvil_site.rpc_url, written=anvil_site.written)
    await thief.fund()

    with pytest.raises(FileRejected) as refused:
        await thief.run(terms=terms_of(thief.signer.address, relayers=(OTHER,)))

    assert all("only its admin can do that" in fault for fault in refused.value.faults)
    assert await thief.nonce() == 0


async def test_a_hot_key_with_a_cold_role_fails_the_check_at_the_end(anvil_site: Site) -> None:
    await anvil_site.run()
    terms = terms_of(anvil_site.signer.address, relayers=(REGISTRAR,), registrars=())

    with pytest.raises(FileRejected) as refused:
        await anvil_site.run(terms=terms)

    assert any("PerkNFT: REGISTRAR of" in fault for fault in refused.value.faults)


async def test_a_wallet_without_funds_is_refused_before_anything_is_sent(
    anvil_chain: DevChain,
) -> None:
    site = Site(anvil_chain.rpc_url)

    with pytest.raises(Misconfigured, match="holds 0 of the chain's coin and may need"):
        await site.run()

    await site.fund()
    await site.run()
    assert await site.nonce() == SENDS


async def test_other_code_at_an_address_is_refused(anvil_site: Site) -> None:
    done = await anvil_site.run()
    swapped = {**done.contracts, "PointsSale": done.contracts["BusinessEscrow"]}
    anvil_site.written = replace(done, contracts=swapped)

    with pytest.raises(Misconfigured, match="is not this version's PointsSale"):
        await anvil_site.run()


async def test_contracts_of_another_ltz_are_refused(anvil_site: Site) -> None:
    done = await anvil_site.run()
    other = Site(anvil_site.rpc_url)
    await other.fund()
    theirs = await other.run()
    other.written = replace(
        theirs, contracts={**theirs.contracts, "PerkNFT": DeployedContract(done.address("PerkNFT"))}
    )

    with pytest.raises(Misconfigured, match="is not this version's PerkNFT"):
        await other.run()


async def test_one_changed_byte_of_code_is_noticed(anvil_site: Site) -> None:
    done = await anvil_site.run()
    ltz = done.address("LTZ")
    async with Rpc(anvil_site.rpc_url) as rpc:
        for contract in artifacts.CONTRACTS:
            at = done.address(contract)
            code = await Node(rpc).code(at)
            for place in (0, 1, len(code) // 2, len(code) - 1):
                changed = bytearray(code)
                changed[place] ^= 1
                assert not runtime_code.matches_source(
                    contract, bytes(changed), done.chain_id, at, ltz
                )
            assert not runtime_code.matches_source(contract, code[:-1], done.chain_id, at, ltz)
            assert not runtime_code.matches_source(contract, code, done.chain_id + 1, at, ltz)
            assert not runtime_code.matches_source(contract, code, done.chain_id, ZERO_ADDRESS, ltz)


async def test_ltz_alone_is_completed(anvil_site: Site) -> None:
    """An instance of ltzd 0.1 has LTZ and recorded no nonce."""
    done = await anvil_site.run()
    alone = replace(
        done, deployer=ZERO_ADDRESS, contracts={"LTZ": DeployedContract(done.address("LTZ"))}
    )
    anvil_site.written = alone

    again = await anvil_site.run()

    assert again.address("LTZ") == done.address("LTZ")
    assert again.first_block == done.first_block
    assert hex_of(again.address("PerkNFT")) != hex_of(done.address("PerkNFT"))
    await assert_complete(anvil_site)
