"""Each role has connections of its own to every node, so that no role waits for another one's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from ltzd.chain.pool.pool import ROLES
from ltzd.errors import NodeUnavailable
from tests.support.chain.node_fleet import QUICK, Fleet, FleetNode, a_fleet
from tests.support.waiting import until

CONNECTIONS = 3
SLOW = "eth_call"
FEW = replace(QUICK, timeout=30.0, connections=CONNECTIONS)


@asynccontextmanager
async def crowded(fleet: Fleet, requests: int) -> AsyncIterator[list[asyncio.Task[object]]]:
    """Requests of HTTP that the fleet's first node never answers hold all of its connections."""
    node = fleet.nodes[0]
    node.hung_methods = frozenset((SLOW,))
    client = fleet.pool.client("http").pinned()
    tasks = [asyncio.create_task(client.call(SLOW, number)) for number in range(requests)]

    async def are_held() -> bool:
        return node.requests.count(SLOW) >= CONNECTIONS

    await until(are_held)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.mark.parametrize("role", [role for role in ROLES if role != "http"])
async def test_unanswered_requests_of_http_take_no_connection_from_another_role(role: str) -> None:
    node = FleetNode("only")
    async with a_fleet(node, policy=FEW) as fleet, crowded(fleet, 10 * CONNECTIONS) as tasks:
        async with asyncio.timeout(20):
            answers = [await fleet.pool.client(role).call("who") for _ in range(5)]
        assert answers == ["only"] * 5
        assert node.requests.count(SLOW) == CONNECTIONS
        assert not any(task.done() for task in tasks)


async def test_a_role_without_a_free_connection_says_nothing_about_the_node() -> None:
    nodes = [FleetNode(name, hung_methods=frozenset((SLOW,))) for name in ("a", "b")]
    policy = replace(FEW, connections=1, patience=0.01, pinned_timeout=30.0)
    async with a_fleet(*nodes, policy=policy) as fleet:
        client = fleet.pool.client("http").pinned()
        held = asyncio.create_task(client.call(SLOW))

        async def is_held() -> bool:
            return any(SLOW in node.requests for node in nodes)

        await until(is_held)
        with pytest.raises(NodeUnavailable, match="Too many requests") as raised:
            await client.call("who")
        held.cancel()
        assert raised.value.kind == "busy"
        assert [report.reason for report in fleet.pool.reports()] == [None, None]


async def test_the_node_is_still_watched_while_http_holds_its_connections() -> None:
    node = FleetNode("only")
    async with (
        a_fleet(node, policy=FEW, is_watched=True) as fleet,
        crowded(fleet, 10 * CONNECTIONS),
    ):
        node.height += 7

        async def is_seen() -> bool:
            return fleet.pool.reports()[0].height == node.height

        await until(is_seen)
        assert fleet.pool.reports()[0].is_usable


async def test_a_method_that_hangs_for_http_alone_stops_a_lane_for_moments_at_most() -> None:
    """Timeouts open the circuit of a single node; the watch closes it with the next look."""
    node = FleetNode("only")
    policy = replace(FEW, timeout=0.2)
    async with a_fleet(node, policy=policy, is_watched=True) as fleet:
        answered = 0

        async def lane_works() -> bool:
            nonlocal answered
            try:
                await fleet.pool.client("operator").call("who")
                answered += 1
            except NodeUnavailable:
                answered = 0
            return answered >= 5

        async with crowded(fleet, 10 * CONNECTIONS) as tasks:

            async def are_over() -> bool:
                return sum(task.done() for task in tasks) >= 2 * CONNECTIONS

            await until(lane_works)
            await until(are_over)
            await until(lane_works)


async def test_all_clients_of_a_node_share_what_it_has_taught() -> None:
    async with a_fleet(FleetNode("first"), FleetNode("second")) as fleet:
        limits = [
            {id(client.limits) for client in member.clients.values()}
            for member in fleet.pool.members
        ]
    assert [len(each) for each in limits] == [1, 1]
    assert limits[0] != limits[1]
