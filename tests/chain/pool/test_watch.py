"""The watch of a pool's nodes: foreign, dead, hung, invented and contradicting nodes."""

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from ltzd.chain.pool.report import NodeReport, Unfit
from ltzd.errors import NodeUnavailable
from tests.support.chain.node_fleet import QUICK, Fleet, FleetNode, a_fleet
from tests.support.waiting import until


def report_of(fleet: Fleet, position: int) -> NodeReport:
    return fleet.pool.reports()[position]


async def reason_is(fleet: Fleet, position: int, reason: Unfit | None) -> None:
    async def holds() -> bool:
        return report_of(fleet, position).reason is reason

    await until(holds)


async def check_each(fleet: Fleet) -> None:
    for member in fleet.pool.members:
        await fleet.watch.check(member)


def has_been_asked(node: FleetNode, times: int) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return len(node.requests) >= times

    return holds


@pytest.mark.parametrize("padding", [100_000, 1_000_000])
async def test_a_node_that_pads_its_blocks_is_left_alone_at_once(padding: int) -> None:
    """Its blocks are right, but hold many values within the bound of a header, or are too long."""
    async with a_fleet(FleetNode("ours"), FleetNode("liar")) as fleet:
        fleet.nodes[1].padding = padding
        fleet.nodes[1].height += 1
        await fleet.watch.check(fleet.pool.members[1])
        report = report_of(fleet, 1)
        assert (report.reason, report.height) == (Unfit.UNREACHABLE, 100)
        assert report.errors["oversized"] == 1
        assert "honest" in report.detail or "longer than" in report.detail
        fleet.nodes[1].padding = 0
        await check_each(fleet)
        assert report_of(fleet, 1).reason is None


@pytest.mark.parametrize(
    ("foreign", "reason"),
    [
        (FleetNode("other", chain_id=1), Unfit.OTHER_CHAIN),
        (FleetNode("other", branch="x"), Unfit.OTHER_CHAIN),
        (FleetNode("other", code="0x"), Unfit.NO_CONTRACT),
    ],
)
async def test_a_node_of_another_chain_is_never_asked(foreign: FleetNode, reason: Unfit) -> None:
    foreign.requests.clear()
    async with a_fleet(FleetNode("ours"), foreign) as fleet:
        assert report_of(fleet, 1).reason is reason
        await fleet.kill(fleet.nodes[0])
        with pytest.raises(NodeUnavailable):
            await fleet.pool.client("http").call("who")
        assert "who" not in foreign.requests


async def test_one_node_of_three_with_forged_code_is_left_out_although_it_answers_first() -> None:
    forger = FleetNode("forger", code="0x6666")
    honest = [FleetNode(name, delay_seconds=0.05) for name in ("b", "c")]
    async with a_fleet(forger, *honest, is_watched=True) as fleet:
        await reason_is(fleet, 1, None)
        await reason_is(fleet, 2, None)
        assert report_of(fleet, 0).reason is Unfit.NO_CONTRACT


@pytest.mark.parametrize("forger", [0, 1])
async def test_two_nodes_with_different_code_stay_in_use_and_neither_counts_as_alone(
    forger: int,
) -> None:
    """The forger would otherwise be believed alone, and nothing would work without it."""
    nodes = FleetNode("a"), FleetNode("b")
    nodes[forger].code = "0x6666"
    async with a_fleet(*nodes, is_watched=True) as fleet:
        await reason_is(fleet, 0, Unfit.DISAGREES)
        await reason_is(fleet, 1, Unfit.DISAGREES)
        for member in fleet.pool.members:
            assert fleet.pool.is_usable(member)
            assert not fleet.pool.is_alone(member)
            assert member.errors["disagreement_code"]
        await fleet.kill(nodes[forger])
        assert await fleet.pool.client("http").call("who") == nodes[1 - forger].name


@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_slow_node_is_not_taken_for_a_hung_one(is_alone: bool) -> None:
    slow = FleetNode("slow", delay_seconds=0.4)
    others = [] if is_alone else [FleetNode("hung", mode="hung")]
    policy = replace(QUICK, pinned_timeout=0.3 if is_alone else 1.2)
    async with a_fleet(slow, *others, policy=policy, is_watched=True) as fleet:
        await until(has_been_asked(slow, 20))
        assert report_of(fleet, 0).is_usable
        assert not report_of(fleet, 0).errors


async def test_a_node_that_moves_to_another_chain_is_found_after_it_was_away() -> None:
    moving = FleetNode("moving")
    async with a_fleet(FleetNode("ours"), moving, is_watched=True) as fleet:
        moving.mode = "http_500"
        await reason_is(fleet, 1, Unfit.UNREACHABLE)
        moving.chain_id, moving.mode = 1, "ok"
        await reason_is(fleet, 1, Unfit.OTHER_CHAIN)


async def test_a_node_that_moves_to_another_chain_without_failing_is_found() -> None:
    moving = FleetNode("moving")
    async with a_fleet(FleetNode("ours"), moving, is_watched=True) as fleet:
        assert report_of(fleet, 1).reason is None
        moving.chain_id = 1
        await reason_is(fleet, 1, Unfit.OTHER_CHAIN)


async def test_a_head_that_falls_asks_for_another_proof_of_the_chain() -> None:
    moving = FleetNode("moving")
    seldom = replace(QUICK, verify_pause=3600.0)
    async with a_fleet(FleetNode("ours"), moving, policy=seldom) as fleet:
        moving.chain_id, moving.height = 1, 10
        await fleet.watch.check_all()
        assert report_of(fleet, 1).reason is Unfit.OTHER_CHAIN


async def test_a_hung_node_is_found_and_used_again_once_it_answers() -> None:
    hung = FleetNode("hung")
    async with a_fleet(FleetNode("ours"), hung, is_watched=True) as fleet:
        hung.mode = "hung"
        await reason_is(fleet, 1, Unfit.HUNG)
        hung.mode = "ok"
        await reason_is(fleet, 1, None)
        assert report_of(fleet, 1).is_usable


async def test_a_node_that_was_dead_at_the_start_joins_later() -> None:
    late = FleetNode("late", mode="http_500")
    async with a_fleet(FleetNode("ours"), late, is_watched=True) as fleet:
        assert not report_of(fleet, 1).is_usable
        late.mode = "ok"
        await reason_is(fleet, 1, None)


async def test_a_node_that_invents_a_head_makes_no_honest_node_look_behind() -> None:
    liar = FleetNode("liar")
    async with a_fleet(FleetNode("honest"), liar) as fleet:
        liar.height, liar.invents_head = 1_000_000, True
        await fleet.watch.check_all()
        assert report_of(fleet, 0).is_usable
        assert report_of(fleet, 1).reason is Unfit.DISAGREES
        assert await fleet.pool.client("indexer").call("who") == "honest"


async def test_a_node_that_invents_a_fast_chain_hides_no_lag_of_another_one() -> None:
    liar, honest, behind = FleetNode("liar", block_seconds=1e-6), FleetNode("b"), FleetNode("c")
    async with a_fleet(liar, honest, behind) as fleet:
        for _ in range(8):
            liar.height += 1_000_000
            honest.height += 1
            behind.height += 1
            await check_each(fleet)
        honest.height += 10
        await check_each(fleet)
        assert report_of(fleet, 1).is_usable
        assert report_of(fleet, 2).reason is Unfit.BEHIND


async def test_one_node_of_three_on_another_branch_is_distrusted() -> None:
    nodes = [FleetNode("a"), FleetNode("b"), FleetNode("c")]
    async with a_fleet(*nodes) as fleet:
        nodes[1].branch, nodes[1].branch_from = "fork", 90
        await fleet.watch.compare()
        reasons = [report.reason for report in fleet.pool.reports()]
        assert reasons == [None, Unfit.DISAGREES, None]


async def test_two_nodes_that_contradict_each_other_are_both_reported() -> None:
    nodes = [FleetNode("a"), FleetNode("b")]
    async with a_fleet(*nodes) as fleet:
        nodes[1].branch, nodes[1].branch_from = "fork", 90
        await fleet.watch.compare()
        assert {report.reason for report in fleet.pool.reports()} == {Unfit.DISAGREES}
        assert await fleet.pool.client("http").call("who") in {"a", "b"}


async def test_branches_that_differ_near_the_head_are_no_contradiction() -> None:
    nodes = [FleetNode("a"), FleetNode("b")]
    async with a_fleet(*nodes) as fleet:
        nodes[1].branch, nodes[1].branch_from = "fork", 100 - QUICK.compare_depth + 1
        await fleet.watch.compare()
        assert {report.reason for report in fleet.pool.reports()} == {None}
