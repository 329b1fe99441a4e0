"""A process serves the wallets that settings and registry name, as they come and go."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.chain.signing import Signer, WalletSigner
from ltzd.operator.fleet.fleet import FleetParts, LaneFleet
from ltzd.operator.fleet.slot import FleetLane
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import wallet_work, wallets
from ltzd.store.operator.wallets import WalletState
from ltzd.values import Address, checksummed
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.chain.mint_world import true
from tests.support.relays.fleets import FleetWorld, a_key_file, of_settings, serves
from tests.support.relays.lanes import OTHER_RELAYER, OTHER_USER, RELAYER, a_relay_world
from tests.support.rows.core import value
from tests.support.waiting import until

KEY, OTHER_KEY = b"\x02" * 32, b"\x03" * 32
THIRD = Signer(b"\x04" * 32)


@pytest_asyncio.fixture
async def fleets(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[FleetWorld]:
    async with a_relay_world(database_url, pool, observer) as world:
        world.node.mines_at_once = True
        yield FleetWorld(world)


def user_of(number: int) -> Address:
    return Address(number.to_bytes(20, "big"))


async def senders(fleets: FleetWorld) -> set[bytes]:
    async with session(fleets.world.observer) as connection:
        rows = await connection.fetch("SELECT DISTINCT wallet FROM transactions")
    return {row["wallet"] for row in rows}


def fault_sentences(fleet: LaneFleet, *, required: bool) -> list[str]:
    return [wallet.sentence for wallet in fleet.unserved if wallet.is_required is required]


async def has_fault(fleet: LaneFleet, text: str, *, required: bool) -> None:
    async def is_told() -> bool:
        return any(text in fault for fault in fault_sentences(fleet, required=required))

    await until(is_told)


# --- coming -------------------------------------------------------------------------------------


async def test_a_wallet_of_the_settings_is_entered_and_served(fleets: FleetWorld) -> None:
    async with fleets.fleet(of_settings("operator.relay_key_file", RELAYER)) as fleet:
        await serves(fleet, RELAYER.address)
        assert fleet.is_settled
        row = await fleets.row(RELAYER.address)
        assert row is not None
        assert (row.kind, row.state, row.signer) == ("relay", WalletState.ACTIVE, None)
        await fleets.world.ask()
        await fleets.world.relays_are("mined")
    assert fleets.sizes == [1]


async def test_an_added_wallet_is_served_while_the_process_runs(
    fleets: FleetWorld, tmp_path: Path
) -> None:
    async with fleets.fleet(of_settings("operator.relay_key_file", RELAYER)) as fleet:
        await serves(fleet, RELAYER.address)
        await fleets.add(OTHER_RELAYER.address, a_key_file(tmp_path / "key", OTHER_KEY))
        await serves(fleet, RELAYER.address, OTHER_RELAYER.address)

        # A wallet that has relays of a user under way also gets the user's next ones.
        users = map(user_of, itertools.count(1))

        async def both_have_sent() -> bool:
            await fleets.world.ask(3, next(users))
            await fleets.world.ask(3, next(users))
            return await senders(fleets) == {RELAYER.address, OTHER_RELAYER.address}

        await until(both_have_sent)
    assert fleets.sizes == [1, 2]


async def test_a_key_that_does_not_open_stops_no_other_lane_and_is_tried_again(
    fleets: FleetWorld, tmp_path: Path
) -> None:
    with capture_logs() as logs:
        async with fleets.fleet(of_settings("operator.relay_key_file", RELAYER)) as fleet:
            await fleets.add(OTHER_RELAYER.address, {"key_file": str(tmp_path / "key")})
            await has_fault(fleet, "cannot be read", required=False)
            await serves(fleet, RELAYER.address)
            assert fleet.is_settled
            assert fault_sentences(fleet, required=True) == []

            a_key_file(tmp_path / "key", OTHER_KEY)
            await serves(fleet, RELAYER.address, OTHER_RELAYER.address)
            assert fault_sentences(fleet, required=False) == []
    faults = [log for log in logs if log["event"] == "wallet.not_served"]
    assert [log["wallet"] for log in faults] == [checksummed(OTHER_RELAYER.address)]


async def test_a_key_of_another_wallet_is_refused(fleets: FleetWorld, tmp_path: Path) -> None:
    async with fleets.fleet() as fleet:
        await fleets.add(OTHER_RELAYER.address, a_key_file(tmp_path / "key", KEY))
        await has_fault(fleet, f"holds the key of {checksummed(RELAYER.address)}", required=False)
        assert fleet.lanes == []


async def test_a_changed_signer_replaces_the_lane(fleets: FleetWorld, tmp_path: Path) -> None:
    async with fleets.fleet() as fleet:
        await fleets.add(RELAYER.address, a_key_file(tmp_path / "key", KEY))
        await serves(fleet, RELAYER.address)
        (before,) = fleet.lanes
        async with session(fleets.world.observer) as connection:
            moved = a_key_file(tmp_path / "moved", KEY)
            await wallets.set_signer(connection, CHAIN_ID, RELAYER.address, moved)

        async def is_replaced() -> bool:
            return [lane is before for lane in fleet.lanes] == [False]

        await until(is_replaced)
        await serves(fleet, RELAYER.address)


async def test_a_key_that_two_places_name_gets_one_lane(fleets: FleetWorld) -> None:
    named = of_settings("operator.relay_key_file", RELAYER)
    doubled = of_settings("operator.wallets[0]", RELAYER)
    async with fleets.fleet(named, doubled) as fleet:
        await serves(fleet, RELAYER.address)
        await has_fault(fleet, "name each wallet once", required=True)
        assert len(fleet.lanes) == 1


async def test_a_wallet_of_another_kind_is_refused(fleets: FleetWorld) -> None:
    await fleets.add(RELAYER.address, None, kind="mint")
    async with fleets.fleet(of_settings("operator.relay_key_file", RELAYER)) as fleet:
        await has_fault(fleet, "knows it as a mint wallet", required=True)
        assert fleet.lanes == []


# --- going --------------------------------------------------------------------------------------


async def test_a_draining_wallet_takes_no_new_work_and_finishes(fleets: FleetWorld) -> None:
    node = fleets.world.node
    node.mines_at_once = False
    async with fleets.fleet(of_settings("operator.relay_key_file", RELAYER)) as fleet:
        await serves(fleet, RELAYER.address)
        await fleets.world.ask()
        await fleets.world.relays_are("sent")
        await fleets.set_state(RELAYER.address, WalletState.DRAINING)

        async def is_draining() -> bool:
            return bool(
                await value(fleets.world.observer, "SELECT paused_for = 'draining' FROM lanes")
            )

        await until(is_draining)
        await fleets.world.ask(user=OTHER_USER)
        node.mine(4)
        await fleets.world.settled("confirmed")
        await fleets.world.relays_are("mined", "queued")

        await fleets.set_state(RELAYER.address, WalletState.ACTIVE)
        await fleets.world.relays_are("mined", "sent")
        assert fleet.is_settled


async def test_the_lane_of_a_retired_wallet_ends_and_the_others_work(
    fleets: FleetWorld, tmp_path: Path
) -> None:
    await fleets.add(OTHER_RELAYER.address, a_key_file(tmp_path / "key", OTHER_KEY))
    async with fleets.fleet(of_settings("operator.relay_key_file", RELAYER)) as fleet:
        await serves(fleet, RELAYER.address, OTHER_RELAYER.address)
        await fleets.set_state(OTHER_RELAYER.address, WalletState.RETIRED)
        await serves(fleet, RELAYER.address)
        await fleets.world.ask()
        await fleets.world.relays_are("mined")
        assert fault_sentences(fleet, required=False) == []


async def test_a_lane_stores_nothing_after_its_wallet_is_retired_in_the_midst_of_work(
    fleets: FleetWorld,
) -> None:
    """The lane has not heard of it yet: nobody notifies it, and calls keep coming."""
    async with fleets.fleet(of_settings("operator.relay_key_file", RELAYER)) as fleet:
        await serves(fleet, RELAYER.address)
        await fleets.world.ask(20)
        async with transaction(fleets.world.observer) as connection:
            await wallet_work.retire(connection, CHAIN_ID, RELAYER.address, "stolen")
            await connection.execute("SELECT pg_sleep(0.05)")
        nonce = await value(fleets.world.observer, "SELECT next_nonce FROM lanes")
        await fleets.world.ask(20, OTHER_USER)
        await serves(fleet)
        await until(lambda: true(fleet.is_settled))
        assert await value(fleets.world.observer, "SELECT next_nonce FROM lanes") == nonce
        assert await value(fleets.world.observer, "SELECT count(*) FROM transactions") == nonce


async def test_a_retired_wallet_is_watched_until_what_it_signed_is_final(
    fleets: FleetWorld,
) -> None:
    node = fleets.world.node
    node.mines_at_once = False
    async with fleets.fleet(of_settings("operator.relay_key_file", RELAYER)) as fleet:
        await serves(fleet, RELAYER.address)
        await fleets.world.ask()
        await fleets.world.relays_are("sent")
        await fleets.set_state(RELAYER.address, WalletState.RETIRED)

        async def is_watched() -> bool:
            return [lane.kind for lane in fleet.lanes if lane.is_serving] == ["watched"]

        await until(is_watched)
        node.mine(4)
        await fleets.world.settled("confirmed")

        async def is_over() -> bool:
            return fleet.lanes == []

        await until(is_over)


async def test_a_retired_wallet_of_the_settings_is_not_revived_and_the_log_alone_says_so(
    fleets: FleetWorld,
) -> None:
    with capture_logs() as logs:
        async with fleets.fleet(of_settings("operator.relay_key_file", RELAYER)) as fleet:
            await serves(fleet, RELAYER.address)
            await fleets.set_state(RELAYER.address, WalletState.RETIRED)
            await serves(fleet)
            await until(lambda: true(fleet.is_settled))
            assert fleet.unserved == []
    (line,) = (log for log in logs if log["event"] == "wallet.not_served")
    assert line["log_level"] == "error"
    assert "remove it from the settings" in line["reason"]


# --- failing ------------------------------------------------------------------------------------


class FailingLane:
    """A lane with an error in it, which fails the first two times."""

    kind = "relay"
    is_serving = is_ready = False
    stopped = None
    balance_wei = None
    failures = 0

    def __init__(self, lane: FleetLane) -> None:
        self._lane = lane
        self.wallet: Address = lane.wallet

    async def run(self) -> None:
        FailingLane.failures += 1
        if FailingLane.failures < 3:
            raise IndexError("an error in ltzd")
        await self._lane.run()


async def test_an_error_in_one_lane_ends_that_lane_alone_and_it_begins_again(
    fleets: FleetWorld,
) -> None:
    FailingLane.failures = 0
    parts = fleets.parts()

    def lane(kind: str, signer: WalletSigner) -> FleetLane:
        made = parts.lane(kind, signer)
        return FailingLane(made) if made.wallet == OTHER_RELAYER.address else made

    counted = telemetry.LANE_FAILURES.labels("relay")._value
    before = counted.get()
    with capture_logs() as logs:
        async with fleets.fleet(
            of_settings("operator.relay_key_file", RELAYER),
            of_settings("operator.wallets[0]", OTHER_RELAYER),
            parts=FleetParts(parts.open_signer, lane),
        ) as fleet:
            await serves(fleet, RELAYER.address)

            async def has_begun_again() -> bool:
                return FailingLane.failures == 3

            await until(has_begun_again)
            await fleets.world.ask(3)
            await fleets.world.relays_are("mined", "mined", "mined")
    assert counted.get() == before + 2
    assert len([log for log in logs if log["event"] == "lane.failed"]) == 2


async def test_a_wallet_in_a_state_of_a_newer_version_ends_no_other_wallets_lane(
    fleets: FleetWorld,
) -> None:
    checks, state = "operator_wallets_state_check", "UPDATE operator_wallets SET state = $1"
    third = f"WHERE wallet = '\\x{THIRD.address.hex()}'"
    with capture_logs() as logs:
        async with fleets.fleet(of_settings("operator.relay_key_file", RELAYER)) as fleet:
            await serves(fleet, RELAYER.address)
            await fleets.add(THIRD.address, None)
            async with session(fleets.world.observer) as connection:
                await connection.execute(f"ALTER TABLE operator_wallets DROP CONSTRAINT {checks}")
                await connection.execute(f"{state} {third}", "suspended")
            await until(lambda: true("fleet.not_read" in [log["event"] for log in logs]))
            await fleets.world.ask(3)
            await fleets.world.relays_are("mined", "mined", "mined")
            async with session(fleets.world.observer) as connection:
                await connection.execute(f"{state} {third}", "active")
            await until(lambda: true("fleet.read_again" in [log["event"] for log in logs]))
            await serves(fleet, RELAYER.address)
    (line,) = (log for log in logs if log["event"] == "fleet.not_read")
    assert line["reason"] == "ValueError: 'suspended' is not a valid WalletState"


# --- two processes ------------------------------------------------------------------------------


async def test_two_fleets_hold_each_wallet_once_and_one_takes_over_from_the_other(
    fleets: FleetWorld,
) -> None:
    first = of_settings("operator.relay_key_file", RELAYER)
    second = of_settings("operator.wallets[0]", OTHER_RELAYER)
    third = of_settings("operator.wallets[1]", THIRD)
    everyone = {RELAYER.address, OTHER_RELAYER.address, THIRD.address}
    async with fleets.fleet(first, second, third) as staying:
        async with fleets.fleet(first, second, third) as ending:

            async def each_is_held_once() -> bool:
                held = [
                    lane.wallet
                    for fleet in (staying, ending)
                    for lane in fleet.lanes
                    if lane.is_serving
                ]
                return sorted(held) == sorted(everyone)

            await until(each_is_held_once)
            await fleets.world.ask(5)
            await fleets.world.relays_are(*["mined"] * 5)
        await serves(staying, *everyone)
        await fleets.world.ask(5, OTHER_USER)
        await fleets.world.relays_are(*["mined"] * 10)
    assert fleets.world.node.executed().total() == 10


async def test_a_change_by_another_process_is_seen_without_its_notification(
    fleets: FleetWorld, tmp_path: Path
) -> None:
    async with fleets.fleet() as fleet:
        await until(lambda: true(fleet.is_settled))
        async with session(fleets.world.observer) as connection:
            reference = a_key_file(tmp_path / "key", KEY)
            await wallets.add(connection, CHAIN_ID, RELAYER.address, "relay", reference)
        await serves(fleet, RELAYER.address)
