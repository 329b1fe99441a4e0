"""The sentences, states and gauges of a pool whose nodes are dead, hung, foreign or contradict."""

import asyncio

import pytest

from ltzd import telemetry
from ltzd.chain.node.node import Node
from ltzd.chain.pool import health
from ltzd.chain.pool.health import ChainState
from ltzd.chain.pool.report import NodeReport, Unfit
from tests.support.chain.node_fleet import Fleet, FleetNode, a_fleet
from tests.support.waiting import Stopwatch, until

SECONDS = 1.0
CONTRADICTION = "nonce_below_mined"


async def reasons_are(fleet: Fleet, *reasons: Unfit | None) -> None:
    async def hold() -> bool:
        return [report.reason for report in fleet.pool.reports()] == list(reasons)

    await until(hold)


def sentences(fleet: Fleet) -> list[str]:
    """The faults, with `N` in place of a node's name and without seconds."""
    faults = health.faults(fleet.pool.reports())
    for report in fleet.pool.reports():
        faults = [fault.replace(report.name, "N") for fault in faults]
    return [fault.partition(" (its last answer was")[0] for fault in faults]


def serving(fleet: Fleet) -> list[bool]:
    return [health.is_serving(report) for report in fleet.pool.reports()]


async def test_of_two_nodes_one_dead_is_a_fault_and_the_chain_is_connected() -> None:
    async with a_fleet(FleetNode("a"), FleetNode("b"), is_watched=True) as fleet:
        assert (sentences(fleet), serving(fleet)) == ([], [True, True])
        await fleet.kill(fleet.nodes[1])
        await reasons_are(fleet, None, Unfit.UNREACHABLE)
        assert sentences(fleet) == ["Node N does not answer"]
        assert serving(fleet) == [True, False]
        assert await health.probe(fleet.pool, SECONDS) is ChainState.CONNECTED


async def test_a_hung_node_in_use_does_not_hide_the_other_one_from_the_probe() -> None:
    async with a_fleet(FleetNode("a"), FleetNode("b")) as fleet:

        async def both_answer() -> bool:
            await fleet.watch.check_all()
            return serving(fleet) == [True, True]

        await until(both_answer)
        used = await fleet.pool.client("http").call("who")
        next(node for node in fleet.nodes if node.name == used).mode = "hung"
        assert await health.probe(fleet.pool, SECONDS) is ChainState.CONNECTED


@pytest.mark.parametrize("count", [1, 3])
async def test_the_probe_is_bounded_although_every_node_accepts_and_never_answers(
    count: int,
) -> None:
    nodes = [FleetNode(str(number)) for number in range(count)]
    async with a_fleet(*nodes, is_watched=True) as fleet:
        for node in nodes:
            node.mode = "hung"
        watch = Stopwatch()
        assert await health.probe(fleet.pool, 0.3) is ChainState.UNAVAILABLE
        assert watch.seconds() < SECONDS
        await reasons_are(fleet, *[Unfit.HUNG] * count)
        assert sentences(fleet) == ["Node N accepts requests and does not answer"] * count
        assert serving(fleet) == [False] * count
        nodes[-1].mode = "ok"
        assert await health.probe(fleet.pool, SECONDS) is ChainState.CONNECTED


async def test_without_any_node_the_chain_is_unavailable_at_once() -> None:
    async with a_fleet(FleetNode("a"), is_watched=True) as fleet:
        await fleet.kill(fleet.nodes[0])
        assert await health.probe(fleet.pool, 60.0) is ChainState.UNAVAILABLE
        await reasons_are(fleet, Unfit.UNREACHABLE)
        assert serving(fleet) == [False]


async def test_a_node_of_another_chain_is_no_sign_of_life() -> None:
    async with a_fleet(FleetNode("ours"), FleetNode("foreign", chain_id=1)) as fleet:
        await fleet.kill(fleet.nodes[0])
        assert await health.probe(fleet.pool, SECONDS) is ChainState.UNAVAILABLE
        assert "Node N belongs to another chain and is not used" in sentences(fleet)


async def test_two_nodes_that_contradict_each_other_serve_and_are_degraded() -> None:
    nodes = FleetNode("a"), FleetNode("b", branch="x", branch_from=50)
    async with a_fleet(*nodes) as fleet:
        await fleet.watch.compare()
        await reasons_are(fleet, Unfit.DISAGREES, Unfit.DISAGREES)
        assert sentences(fleet) == ["Node N contradicts other nodes or itself"] * 2
        assert serving(fleet) == [True, True]
        assert await health.probe(fleet.pool, SECONDS) is ChainState.DEGRADED


async def test_a_single_node_that_contradicts_itself_serves_and_is_degraded() -> None:
    async with a_fleet(FleetNode("alone")) as fleet:
        Node(fleet.pool.client("operator")).report_contradiction(CONTRADICTION)
        assert sentences(fleet) == ["Node N contradicts other nodes or itself"]
        assert serving(fleet) == [True]
        assert await health.probe(fleet.pool, SECONDS) is ChainState.DEGRADED
        name = fleet.pool.reports()[0].name
    shown = telemetry.exposition().decode()
    labels = f'kind="{CONTRADICTION}",node="{name}"'
    assert f"ltzd_chain_node_disagreements_total{{{labels}}} 1.0" in shown


async def test_one_trusted_node_among_contradicting_ones_keeps_the_chain_connected() -> None:
    nodes = FleetNode("a"), FleetNode("b"), FleetNode("c", branch="x", branch_from=50)
    async with a_fleet(*nodes) as fleet:
        await fleet.watch.compare()
        await reasons_are(fleet, None, None, Unfit.DISAGREES)
        assert await health.probe(fleet.pool, SECONDS) is ChainState.CONNECTED


async def test_every_node_has_gauges_and_the_reason_is_one_of_a_closed_set() -> None:
    async with a_fleet(FleetNode("a"), FleetNode("b"), is_watched=True) as fleet:
        fleet.nodes[1].mode = "hung"
        await reasons_are(fleet, None, Unfit.HUNG)
        await fleet.pool.client("http").call("who")
        reports = fleet.pool.reports()
        health.measure(reports)
    shown = telemetry.exposition().decode()
    good, hung = (report.name for report in reports)
    for line in (
        f'node_usable{{node="{good}"}} 1.0',
        f'node_usable{{node="{hung}"}} 0.0',
        f'node_in_use{{node="{good}"}} 1.0',
        f'node_height{{node="{good}"}} 100.0',
        f'node_unfit{{node="{hung}",reason="hung"}} 1.0',
        f'node_unfit{{node="{hung}",reason="unreachable"}} 0.0',
        f'node_unfit{{node="{good}",reason="hung"}} 0.0',
        f'node_latency_seconds{{node="{good}"}} ',
        f'node_silent_seconds{{node="{hung}"}} ',
        f'node_requests_in_flight{{node="{good}"}} ',
    ):
        assert f"ltzd_chain_{line}" in shown
    assert shown.count(f'ltzd_chain_node_unfit{{node="{good}"') == len(Unfit)


async def test_a_process_without_requests_shows_the_node_that_the_next_one_would_ask() -> None:
    """An idle process with the role http alone, one of whose nodes dies and whose other returns."""

    def in_use() -> list[bool]:
        return [report.is_preferred for report in fleet.pool.reports()]

    async with a_fleet(FleetNode("a"), FleetNode("b"), is_watched=True) as fleet:
        await reasons_are(fleet, None, None)
        assert sorted(in_use()) == [False, True]
        first = in_use().index(True)
        await fleet.pool.client("http").call("who")
        assert in_use().index(True) == first

        fleet.nodes[first].mode = "hung"
        await reasons_are(fleet, *((Unfit.HUNG, None) if first == 0 else (None, Unfit.HUNG)))
        assert in_use().index(True) == 1 - first


async def test_a_node_that_is_seen_again_loses_its_fault() -> None:
    node = FleetNode("a")
    async with a_fleet(node, is_watched=True) as fleet:
        node.mode = "hung"
        await reasons_are(fleet, Unfit.HUNG)
        node.mode = "ok"
        await reasons_are(fleet, None)
        assert (sentences(fleet), serving(fleet)) == ([], [True])


def test_every_reason_has_a_sentence() -> None:
    for reason in Unfit:
        report = NodeReport("n.example:443", False, False, reason, 7, 0.1, 12.4, 0, {}, "")
        (sentence,) = health.faults([report])
        assert sentence.startswith("Node n.example:443 ")


async def test_a_cancelled_probe_leaves_no_task() -> None:
    node = FleetNode("a")
    async with a_fleet(node) as fleet:
        node.mode = "hung"
        before = asyncio.all_tasks()
        probing = asyncio.create_task(health.probe(fleet.pool, 60.0))

        async def is_asked() -> bool:
            return node.requests[-1] == "eth_chainId" and node.requests.count("eth_chainId") > 1

        await until(is_asked)
        probing.cancel()
        await asyncio.wait({probing})

        async def are_gone() -> bool:
            extra = asyncio.all_tasks() - before
            return not any("_answers" in repr(task) for task in extra)

        await until(are_gone)


@pytest.mark.parametrize(
    ("roles", "needed"),
    [
        (("http",), False),
        (("deliveries",), False),
        (("http", "indexer"), True),
        (("operator",), True),
    ],
)
def test_lanes_and_indexer_need_a_node_and_http_does_not(
    roles: tuple[str, ...], needed: bool
) -> None:
    assert health.needs_a_node(roles) is needed
