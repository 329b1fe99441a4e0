"""Lanes whose key is in AWS KMS or in web3signer, and what a service that lies can do: nothing."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.chain.remote_signing import open_remote_signer
from ltzd.chain.signing import TransactionEncoding
from ltzd.operator.policy import PauseBackoff
from ltzd.providers.signers.kms import KmsKey
from ltzd.providers.signers.web3signer import Web3SignerKey
from ltzd.values import keccak
from tests.support.chain.mint_world import PAUSES, POLICY, true
from tests.support.chain.signers import a_transaction
from tests.support.relays.fleets import FleetWorld, serves
from tests.support.relays.lanes import RELAYER, RelayWorld, row_states
from tests.support.rows.core import states
from tests.support.services.kms import KmsServer, a_kms, answering, refusing, use_credentials
from tests.support.services.web3signer import a_web3signer, sign
from tests.support.services.web3signer import answering as answering_text
from tests.support.waiting import until

PATIENT = replace(
    POLICY,
    replace_after_seconds=3600.0,
    pauses=replace(PAUSES, signer=PauseBackoff(0.02, 0.05)),
)


@pytest_asyncio.fixture
async def kms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KmsServer]:
    use_credentials(tmp_path, monkeypatch)
    async with a_kms() as server:
        yield server


def wrong_signatures() -> float:
    return telemetry.REGISTRY.get_sample_value("ltzd_chain_wrong_signatures_total") or 0.0


async def requested(server: KmsServer, times: int = 3) -> None:
    before = len(server.operations)
    await until(lambda: true(len(server.operations) >= before + times))


async def test_kms_mints(world: RelayWorld, kms: KmsServer) -> None:
    kms.has_high_s = True
    async with KmsKey(kms.policy()) as key:
        world.signer = await open_remote_signer(key)
        async with world.serving(PATIENT):
            await world.queue(3)
            await world.settled("published")
            world.node.mine()
            await world.minted()
    await world.each_minted_once()


async def test_relays_are_signed_at_once_not_one_by_one(world: RelayWorld, kms: KmsServer) -> None:
    kms.together = asyncio.Barrier(30)
    async with KmsKey(kms.policy()) as key:
        signer = await open_remote_signer(key)
        await world.ask(30)
        async with world.relaying(PATIENT, signer):
            await world.settled(*["published"] * 30)
            world.node.mine()
            await world.settled(*["mined"] * 30)
    await world.executed_in_order()
    assert kms.most_at_once == 30


async def test_a_throttled_kms_delays_and_loses_nothing(world: RelayWorld, kms: KmsServer) -> None:
    async with KmsKey(kms.policy()) as key:
        world.signer = await open_remote_signer(key)
        async with world.serving(PATIENT):
            kms.always = refusing("ThrottlingException")
            await world.queue(2)
            await requested(kms, 12)
            assert await states(world.observer) == []
            kms.always = None
            await world.settled("published")
            world.node.mine()
            await world.minted()
    await world.each_minted_once()


async def test_a_lying_kms_has_nothing_stored_or_published(
    world: RelayWorld, kms: KmsServer
) -> None:
    async with KmsKey(kms.policy()) as key:
        signer = await open_remote_signer(key)
        other = TransactionEncoding(a_transaction()).payload
        der = base64.b64encode(kms.der(keccak(other))).decode()
        kms.always = answering({"Signature": der})
        async with world.relaying(PATIENT, signer):
            await world.ask(2)
            await requested(kms, 4)
            assert await row_states(world.observer) == ["queued", "queued"]
            assert world.node.arrived == []
            kms.always = None
            await world.settled("published", "published")
            world.node.mine()
            await world.settled("mined", "mined")
    await world.executed_in_order()


async def test_a_lying_web3signer_has_nothing_stored_or_published(world: RelayWorld) -> None:
    async with a_web3signer() as server, Web3SignerKey(server.policy()) as key:
        world.signer = await open_remote_signer(key)
        other = TransactionEncoding(a_transaction()).payload
        server.always = answering_text(sign(server.keys[0], other))
        before = wrong_signatures()
        async with world.serving(PATIENT) as lane:
            await world.queue(2)
            await until(lambda: true(lane.pause.reason == "signer"))
            assert wrong_signatures() > before
            assert await states(world.observer) == []
            assert world.node.arrived == []
            server.always = None
            await world.settled("published")
            world.node.mine()
            await world.minted()
    await world.each_minted_once()


async def test_a_lane_of_a_fleet_begins_when_its_signer_is_back(world: RelayWorld) -> None:
    fleets = FleetWorld(world)
    async with a_web3signer(bytes([2]) * 32) as server, fleets.fleet() as fleet:
        server.is_away = True
        await fleets.add(RELAYER.address, {"web3signer": {"url": server.base}})
        await world.ask(2)
        await until(lambda: true([wallet.is_required for wallet in fleet.unserved] == [False]))
        assert fleet.lanes == []

        server.is_away = False
        await serves(fleet, RELAYER.address)
        await world.settled("published", "published")
        world.node.mine()
        await world.settled("mined", "mined")
    await world.executed_in_order()
