"""A fleet of relay lanes in a relay world, with key files as `ltzd wallet add` names them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from ltzd.chain.signing import Signer, WalletSigner
from ltzd.daemon.settings.wallets import signer_of
from ltzd.daemon.signers import open_signer
from ltzd.operator.fleet.fleet import FleetParts, LaneFleet, SettingsWallet
from ltzd.operator.fleet.slot import FleetLane, SlotPauses
from ltzd.operator.policy import LanePolicy, MintTarget, RelayTarget
from ltzd.operator.relays.lane import RelayLane
from ltzd.operator.retired.lane import RetiredLane
from ltzd.store.database import transaction
from ltzd.store.operator import wallets
from ltzd.store.operator.leases import Leases
from ltzd.store.operator.wallets import OperatorWallet, WalletState
from ltzd.store.wakeups import WALLETS
from ltzd.values import Address
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT
from tests.support.chain.mint_world import POLICY
from tests.support.relays.lanes import RelayWorld
from tests.support.rows.core import running
from tests.support.secret_files import write_secret
from tests.support.waiting import until

QUICK = SlotPauses(first=0.05, longest=0.2, after_failure=0.05)


def a_key_file(path: Path, key: bytes) -> dict[str, str]:
    """Writes the key, and returns the reference of its signer."""
    write_secret(path, key.hex())
    return {"key_file": str(path)}


def of_settings(place: str, signer: Signer, kind: str = "relay") -> SettingsWallet:
    return SettingsWallet(place, kind, lambda: nullcontext(signer), signer.address)


class FleetWorld:
    """`sizes` has the numbers of lanes that fleets have told."""

    def __init__(self, world: RelayWorld) -> None:
        self.world = world
        self.sizes: list[int] = []

    def parts(self, policy: LanePolicy = POLICY) -> FleetParts:
        world = self.world

        def lane(kind: str, signer: WalletSigner) -> FleetLane:
            assert kind == "relay"
            return RelayLane(
                world.pool,
                Leases(world.url),
                world.node.node,
                signer,
                RelayTarget(CHAIN_ID),
                world.wakeups,
                policy,
            )

        def open_of_row(reference: Mapping[str, Any]) -> Any:
            return open_signer(signer_of(reference))

        def watch(row: OperatorWallet) -> FleetLane:
            target = MintTarget(CHAIN_ID, LTZ_AT)
            return RetiredLane(
                *(world.pool, Leases(world.url), world.node.node, row.wallet, row.kind),
                *(target, world.wakeups, policy),
            )

        return FleetParts(open_of_row, lane, watch, on_size=self.sizes.append)

    @asynccontextmanager
    async def fleet(
        self, *named: SettingsWallet, parts: FleetParts | None = None
    ) -> AsyncIterator[LaneFleet]:
        """Runs a fleet, which is cancelled at the end of the block, as in an ending process."""
        world = self.world
        fleet = LaneFleet(world.pool, CHAIN_ID, world.wakeups, named, parts or self.parts(), QUICK)
        async with running(fleet.run()):
            yield fleet

    async def add(
        self, wallet: Address, signer: Mapping[str, Any] | None, kind: str = "relay"
    ) -> None:
        async with transaction(self.world.observer) as connection:
            await wallets.add(connection, CHAIN_ID, wallet, kind, signer)
        self.world.wakeups.notify(WALLETS)

    async def set_state(self, wallet: Address, state: WalletState) -> None:
        async with transaction(self.world.observer) as connection:
            assert await wallets.set_state(connection, CHAIN_ID, wallet, state)
        self.world.wakeups.notify(WALLETS)

    async def row(self, wallet: Address) -> OperatorWallet | None:
        async with transaction(self.world.observer) as connection:
            return await wallets.find(connection, CHAIN_ID, wallet)


async def serves(fleet: LaneFleet, *wanted: Address) -> None:
    """Waits until the fleet's process holds these wallets and no other ones."""

    async def does() -> bool:
        held = {lane.wallet for lane in fleet.lanes if lane.is_ready}
        return held == set(wanted)

    await until(does)
