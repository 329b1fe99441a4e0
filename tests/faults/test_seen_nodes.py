"""Operators and callers see that one or both of two nodes die, hang or contradict each other."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.support.chain.chains import a_chain
from tests.support.chain.faulty_node import lies
from tests.support.chain.faulty_node.faults import Faults
from tests.support.chain.faulty_node.node import FaultyNode, a_faulty_node
from tests.support.commands import ltzd, ltzd_apart
from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.instance import Answer, Instance, an_instance
from tests.support.services.postgres import Databases
from tests.support.waiting import Stopwatch, until

NOTICED_SECONDS = 45.0
LANE_WAITS = re.compile(r"Lane (mint|relay) 0x\w{40} has been paused for \d+ s: no node answers")
HEALTH_SECONDS = 4.0
"""The health check asks nodes for two seconds; the rest is for a machine under load."""


@dataclass
class Seen:
    """An instance with two nodes of one chain."""

    instance: Instance
    nodes: tuple[FaultyNode, FaultyNode]

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.instance.admin_port}"

    async def readyz(self) -> tuple[int, dict[str, Any]]:
        async with self.instance.http.get(f"{self.admin_url}/readyz") as reply:
            return reply.status, await reply.json()

    async def health(self) -> dict[str, Any]:
        url = f"{self.instance.base_url}/service-api/health"
        async with self.instance.http.get(url) as reply:
            assert reply.status == 200
            body: dict[str, Any] = await reply.json()
            return body

    async def metrics(self) -> str:
        async with self.instance.http.get(f"{self.admin_url}/metrics") as reply:
            return await reply.text()

    async def reasons(self) -> list[str | None]:
        """Why each node is not used, in the order of the settings."""
        return [node["reason"] for node in (await self.instance.status())["nodes"]]

    async def contradictions(self) -> list[int]:
        """How many contradictions each node was found in."""
        return [
            sum(count for kind, count in node["errors"].items() if kind.startswith("disagreement_"))
            for node in (await self.instance.status())["nodes"]
        ]

    async def reasons_are(self, *expected: str | None) -> None:
        async def hold() -> bool:
            return await self.reasons() == list(expected)

        try:
            await until(hold, NOTICED_SECONDS)
        except AssertionError as error:
            nodes = (await self.instance.status())["nodes"]
            raise AssertionError(f"The reasons are not {expected}: {nodes}") from error

    async def health_is(self, status: str, blockchain: str) -> None:
        async def holds() -> bool:
            health = await self.health()
            return (health["status"], health["services"]["blockchain"]) == (status, blockchain)

        await until(holds, NOTICED_SECONDS)

    async def post(self) -> Answer:
        return await self.instance.post_event(f"{uuid4().hex}@shop.example")

    async def heal(self) -> None:
        for node in self.nodes:
            node.heal()
            await node.cut()
            await node.connect()


@pytest_asyncio.fixture(scope="module")
async def shared(databases: Databases) -> AsyncIterator[Seen]:
    async with (
        databases.fresh() as database,
        a_chain("anvil") as chain,
        a_faulty_node(chain.rpc_url) as first,
        a_faulty_node(chain.rpc_url) as second,
        an_instance(
            *("--rpc-url", first.url, "--rpc-url", second.url, "--database-url", database)
        ) as instance,
    ):
        instance.dev_json["rpcUrl"] = chain.rpc_url
        yield Seen(instance, (first, second))


@pytest_asyncio.fixture
async def seen(shared: Seen) -> AsyncIterator[Seen]:
    """Both nodes are used before the test, and every event of the test is minted after it."""
    await shared.reasons_are(None, None)
    await shared.health_is("healthy", "connected")
    yield shared
    await shared.heal()
    await all_minted(shared.instance)


def node_warnings(answer: dict[str, Any]) -> list[str]:
    """The warnings about nodes. Beside them only a lane may warn, that it waits for a node."""
    others = [warning for warning in answer["warnings"] if not warning.startswith("Node ")]
    assert all(LANE_WAITS.fullmatch(warning) for warning in others), others
    return [warning for warning in answer["warnings"] if warning not in others]


def line_of(text: str, node: FaultyNode) -> list[str]:
    """The words of the node's line in the table of `ltzd status`."""
    name = node.url.removeprefix("http://")
    return next(line.split() for line in text.splitlines() if line.strip().startswith(name))


async def test_of_two_nodes_a_dead_one_is_seen_and_everything_stays_ready(seen: Seen) -> None:
    alive, dead = seen.nodes
    await dead.cut()
    await seen.reasons_are(None, "unreachable")
    status, answer = await seen.readyz()
    assert (status, answer["ready"], answer["reasons"]) == (200, True, [])
    (warning,) = node_warnings(answer)
    assert dead.url.removeprefix("http://") in warning
    await seen.health_is("healthy", "connected")

    metrics = await seen.metrics()
    for node, value in ((alive, "1.0"), (dead, "0.0")):
        name = node.url.removeprefix("http://")
        assert f'ltzd_chain_node_usable{{node="{name}"}} {value}' in metrics
    shown = await ltzd_apart("status", "--admin-url", seen.admin_url, COLUMNS="120")
    assert line_of(shown.out, alive)[1] == "yes"
    assert line_of(shown.out, dead)[1] == "no"
    assert {"unreachable", "refused_connection"} <= set(line_of(shown.out, dead))
    listed = (await ltzd("status", "--json", "--admin-url", seen.admin_url)).json["nodes"]
    assert [node["isUsable"] for node in listed] == [True, False]
    assert listed[1]["errors"]["refused_connection"] >= 2
    assert (await seen.post()).status == 200


async def test_of_two_nodes_a_hung_one_is_seen_and_everything_stays_ready(seen: Seen) -> None:
    hung, _ = seen.nodes
    hung.faults = Faults(hung=True)
    await seen.reasons_are("hung", None)
    status, answer = await seen.readyz()
    assert (status, len(node_warnings(answer))) == (200, 1)
    assert "accepts requests and does not answer" in node_warnings(answer)[0]
    await seen.health_is("healthy", "connected")
    assert (await seen.post()).status == 200


@pytest.mark.parametrize("fault", ["hung", "dead"])
async def test_without_a_node_health_answers_in_time_and_lanes_and_indexer_are_not_ready(
    seen: Seen, fault: str
) -> None:
    contradictions = await seen.contradictions()
    for node in seen.nodes:
        if fault == "dead":
            await node.cut()
        else:
            node.faults = Faults(hung=True)
    reason = {"hung": "hung", "dead": "unreachable"}[fault]
    await seen.reasons_are(reason, reason)
    status, answer = await seen.readyz()
    assert (status, answer["ready"], len(node_warnings(answer))) == (503, False, 2)
    assert answer["reasons"][-1].startswith("No node can be used: ")

    await seen.health_is("degraded", "unavailable")
    watch = Stopwatch()
    await seen.health()
    assert watch.seconds() < HEALTH_SECONDS
    answers = await asyncio.gather(*(seen.post() for _ in range(3)))
    assert {answer.status for answer in answers} == {202}

    await seen.heal()
    await seen.reasons_are(None, None)
    await seen.health_is("healthy", "connected")

    async def is_ready() -> bool:
        return (await seen.readyz())[0] == 200

    await until(is_ready, NOTICED_SECONDS)
    await all_minted(seen.instance)
    await assert_books_agree(seen.instance, answers)
    assert await seen.contradictions() == contradictions


async def test_a_node_that_comes_back_on_another_chain_is_left_out_and_named(seen: Seen) -> None:
    moved = seen.nodes[1]
    await moved.cut()
    await seen.reasons_are(None, "unreachable")
    moved.faults = Faults(lies=(lies.another_chain_id(1),))
    await moved.connect()
    await seen.reasons_are(None, "other_chain")
    status, answer = await seen.readyz()
    assert (status, "another chain" in node_warnings(answer)[0]) == (200, True)
    assert (await seen.post()).status == 200
    moved.heal()
    await moved.cut()
    await seen.reasons_are(None, "other_chain")


async def test_a_node_that_contradicts_itself_is_named_and_used_if_no_other_one_is_left(
    seen: Seen,
) -> None:
    """The only node shows a lane's transactions as mined, and the wallet's nonce below them."""
    alone, other = seen.nodes
    await other.cut()
    await seen.reasons_are(None, "unreachable")
    alone.faults = Faults(lies=(lies.false_nonce(-3),))
    answers = [await seen.post() for _ in range(5)]
    assert {answer.status for answer in answers} <= {200, 202}
    await seen.reasons_are("disagrees", "unreachable")
    status, answer = await seen.readyz()
    assert (status, len(node_warnings(answer))) == (200, 2)
    assert "contradicts other nodes or itself" in " ".join(node_warnings(answer))
    await seen.health_is("degraded", "degraded")
    shown = await ltzd_apart("status", "--admin-url", seen.admin_url, COLUMNS="120")
    assert line_of(shown.out, alone)[1] == "last"

    await seen.heal()
    await all_minted(seen.instance)
    await assert_books_agree(seen.instance, answers)


async def test_a_node_that_shows_other_blocks_than_the_other_one_is_named(seen: Seen) -> None:
    for _ in range(6):
        await seen.post()
    liar = seen.nodes[0]
    liar.faults = Faults(lies=(lies.forged_blocks,))

    async def is_named() -> bool:
        return (await seen.reasons())[0] == "disagrees"

    await until(is_named, NOTICED_SECONDS)
    status, answer = await seen.readyz()
    name = liar.url.removeprefix("http://")
    assert (status, f"Node {name} contradicts" in " ".join(node_warnings(answer))) == (200, True)
    assert f'node_unfit{{node="{name}",reason="disagrees"}} 1.0' in await seen.metrics()
