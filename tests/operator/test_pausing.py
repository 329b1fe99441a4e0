"""A waiting lane shows the reason in its row, which every process can read, and in its metric."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

import ltzd
from ltzd import telemetry
from ltzd.operator import policy
from ltzd.operator.pausing import LanePause
from ltzd.rules.operator.fees import GWEI
from ltzd.rules.operator.sendable import Obstacle
from ltzd.store.database import session
from ltzd.store.operator import wallets
from ltzd.store.operator.lanes import Lane
from ltzd.store.status import read_status
from ltzd.store.wakeups import WALLETS
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.chain.mint_world import PAUSES, POLICY, World, true
from tests.support.rows.core import MINTER, a_wallet
from tests.support.waiting import until

KINDS = {policy.MINT, policy.RELAY, policy.TREASURY, policy.WATCHED}
QUICK = replace(POLICY, pauses=replace(PAUSES, status=0.02))


def metric(reason: str, kind: str = "mint") -> float:
    labels = {"kind": kind, "reason": reason}
    return telemetry.REGISTRY.get_sample_value("ltzd_operator_lanes_paused", labels) or 0.0


async def shown_reason(world: World) -> str | None:
    """The reason that a process without lanes reads from the row."""
    async with session(world.observer) as connection:
        facts = await read_status(connection)
    return facts.lanes[0].paused_for if facts.lanes else None


def shows(world: World, reason: str | None) -> Callable[[], Awaitable[bool]]:
    async def is_shown() -> bool:
        return await shown_reason(world) == reason

    return is_shown


def out_of_limit(world: World) -> None:
    world.node.mint_filled = 0


def out_of_funds(world: World) -> None:
    world.node.balance = 0


def expensive(world: World) -> None:
    world.node.base_fee = 1_000 * GWEI


def unreachable(world: World) -> None:
    world.node.is_down = True


CASES = [
    (out_of_limit, "mint_limit"),
    (out_of_funds, "funds"),
    (expensive, "fees"),
    (unreachable, "node"),
]


@pytest.mark.parametrize(("fault", "reason"), CASES, ids=[reason for _, reason in CASES])
async def test_a_waiting_lane_shows_its_reason_until_it_continues(
    world: World, fault: Callable[[World], None], reason: str
) -> None:
    normal = dict(vars(world.node))
    async with world.serving(QUICK):
        fault(world)
        if reason != "node":
            world.node.mine()
            await world.some_polls()
        await world.queue()
        await until(shows(world, reason))
        await until(lambda: true(metric(reason) == 1))

        for name in ("mint_filled", "balance", "base_fee", "is_down"):
            setattr(world.node, name, normal.get(name, False))
        world.node.mines_at_once = True
        world.node.mine()
        await world.minted()
        await until(shows(world, None))
        await until(lambda: true(metric(reason) == 0))


def full(world: World) -> None:
    world.node.refuses = lambda _sent: "txpool is full"


def deaf(world: World) -> None:
    """No publication arrives, while all other requests are answered."""
    world.node.lost_requests = 1_000_000


def poor(world: World) -> None:
    """The balance that the node tells is not the balance that its pool counts with."""
    world.node.refuses = lambda _sent: "insufficient funds for gas * price + value"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(full, "publication"), (deaf, "publication"), (poor, "funds")],
    ids=["full", "deaf", "poor"],
)
async def test_a_lane_whose_bytes_no_node_takes_shows_that_after_a_while(
    world: World, fault: Callable[[World], None], reason: str
) -> None:
    impatient = replace(QUICK, pauses=replace(QUICK.pauses, standstill=0.2))
    async with world.serving(impatient):
        fault(world)
        await world.queue()
        await until(shows(world, reason))

        world.node.refuses = lambda _sent: False
        world.node.lost_requests = 0
        world.node.mines_at_once = True
        await world.minted()
        await until(shows(world, None))


async def test_a_publication_that_fails_for_a_moment_is_no_reason_to_wait(world: World) -> None:
    async with world.serving(QUICK) as lane:
        full(world)
        await world.queue()
        await world.some_polls()
        assert lane.pause.reason is None


async def pause_by_hand(world: World, reason: str | None) -> None:
    async with session(world.observer) as connection:
        await wallets.add(connection, CHAIN_ID, MINTER.address, "mint")
        await wallets.set_paused(connection, CHAIN_ID, MINTER.address, reason)
    world.wakeups.notify(WALLETS)


async def test_a_pause_by_hand_outlasts_the_process_and_what_was_in_flight_is_finished(
    world: World,
) -> None:
    async with world.serving(QUICK):
        await world.queue()
        await world.settled("published")
        await pause_by_hand(world, "incident 41")
        await until(shows(world, "by_hand"))
    await world.queue()
    async with world.serving(QUICK):
        await until(shows(world, "by_hand"))
        world.node.mine(4)
        await world.settled("confirmed")
        assert await world.unminted() == 1

        await pause_by_hand(world, None)
        await world.settled("confirmed", "published")
        await until(shows(world, None))


async def test_a_pause_by_hand_shows_also_while_no_node_takes_bytes(world: World) -> None:
    async with world.serving(QUICK):
        full(world)
        await world.queue()
        await world.settled("signed")
        await pause_by_hand(world, "incident 41")
        await until(shows(world, "by_hand"))


async def test_a_lane_whose_mints_would_all_revert_shows_that_reason(world: World) -> None:
    world.node.reverts = lambda _data: True
    world.node.mines_at_once = True
    await world.queue()
    async with world.serving(QUICK):
        await world.settled("mined")
        await world.queue()
        await until(shows(world, "would_revert"))


async def test_a_lane_that_cannot_begin_without_a_node_shows_that_reason(world: World) -> None:
    async with world.serving(QUICK):
        pass
    world.node.is_down = True
    async with world.lane(QUICK):
        await until(shows(world, "node"))
        await until(lambda: true(metric("node") == 1))

        world.node.is_down = False
        await until(shows(world, None))
        await until(lambda: true(metric("node") == 0))


async def test_a_standby_lane_shows_no_reason(world: World) -> None:
    quick = replace(QUICK, pauses=replace(QUICK.pauses, standby=0.05))
    async with world.serving(quick), world.lane(quick) as other:
        other.pause.set("node")

        async def is_over() -> bool:
            return other.pause.reason is None

        await until(is_over)


def test_every_reason_to_wait_is_explained_to_operators() -> None:
    reasons = {
        value
        for name, value in vars(policy).items()
        if name.isupper() and isinstance(value, str) and value not in KINDS
    } | {obstacle.value for obstacle in Obstacle if obstacle is not Obstacle.INTRINSIC_GAS}
    page = Path(ltzd.__file__).parents[1] / "docs" / "runbooks" / "lanes.md"
    _, table = page.read_text().split("\n## A lane is paused\n")
    explained = set(re.findall(r"^\| `(\w+)` \|", table.split("\n## ")[0], re.MULTILINE))

    assert explained - {"pausedFor"} == reasons


def test_an_alternating_reason_is_logged_once_a_minute() -> None:
    pause = LanePause(Lane(1, a_wallet(1), 1, "mint"))
    with capture_logs() as logs:
        for _ in range(50):
            pause.set("mint_limit")
            pause.set(None)
        pause.set("fees")
        pause.set(None)

    assert [log["reason"] for log in logs] == ["mint_limit", "fees"]
