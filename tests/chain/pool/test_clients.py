"""A pool's clients: the choice of a node, failover, hedged requests, pinned requests."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.view import ChainView
from ltzd.chain.pool.pool import NodePool
from ltzd.chain.pool.report import Unfit
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.breaker import BreakerPolicy
from tests.support.chain.node_fleet import CHAIN_ID, QUICK, FleetNode, a_fleet
from tests.support.waiting import until


async def answering(pool: NodePool, role: str = "operator") -> Any:
    """The name of the node that answers the next request."""
    return await pool.client(role).call("who")


async def test_a_dead_node_is_replaced_within_the_same_request() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        name = await answering(fleet.pool)
        used = first if name == "first" else second
        await fleet.kill(used)
        assert await answering(fleet.pool) != name


async def test_a_hung_node_is_overtaken_by_another_and_then_left_alone() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        name = await answering(fleet.pool)
        hung = first if name == "first" else second
        hung.mode = "hung"
        for _ in range(3):
            assert await answering(fleet.pool) != name
        (report,) = [each for each in fleet.pool.reports() if each.reason is not None]
        assert report.reason is Unfit.HUNG
        assert report.errors["timeout"] >= 1


@pytest.mark.parametrize("method", ["call", "batch", "outcomes", "batched_call"])
async def test_every_kind_of_request_fails_over(method: str) -> None:
    first, second = FleetNode("first", mode="http_500"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        client = fleet.pool.client("http")
        if method in {"call", "batched_call"}:
            assert await getattr(client, method)("who") == "second"
        else:
            assert await getattr(client, method)([("who", ())]) == ["second"]


async def test_requests_stay_with_a_node_while_nothing_speaks_against_it() -> None:
    nodes = [FleetNode("a"), FleetNode("b"), FleetNode("c")]
    async with a_fleet(*nodes, is_watched=True) as fleet:
        names = {await answering(fleet.pool) for _ in range(30)}
    assert len(names) == 1


async def test_a_node_that_falls_behind_is_left_for_one_that_does_not() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        name = await answering(fleet.pool)
        other = second if name == "first" else first
        other.height += 10
        await fleet.watch.check_all()
        assert await answering(fleet.pool) == other.name
        assert {report.reason for report in fleet.pool.reports()} == {None, Unfit.BEHIND}


async def test_no_single_one_of_three_nodes_says_that_the_clock_is_behind() -> None:
    nodes = [FleetNode("a"), FleetNode("b"), FleetNode("c")]
    async with a_fleet(*nodes) as fleet:
        now = 1_700_000_000.0
        await fleet.watch.check_all()
        assert fleet.pool.seconds_ahead(lambda: now) == 100.0, "a block a second"
        nodes[0].block_seconds = 1_000.0
        await fleet.watch.check_all()
        assert fleet.pool.seconds_ahead(lambda: now) == 100.0


async def test_a_node_that_refuses_requests_as_too_many_is_left_by_pinned_clients() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        name = await answering(fleet.pool)
        used = first if name == "first" else second
        used.mode = "limited"
        client = fleet.pool.client("operator")
        with pytest.raises(NodeUnavailable):
            await client.pinned().call("who")
        assert await client.pinned().call("who") != name


async def test_a_node_that_is_behind_is_still_asked_when_all_others_are_dead() -> None:
    first, second = FleetNode("first", height=50), FleetNode("second", height=100)
    async with a_fleet(first, second) as fleet:
        assert await answering(fleet.pool) == "second"
        await fleet.kill(second)
        assert await answering(fleet.pool) == "first"


async def test_without_any_answer_the_last_fault_is_raised() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        await fleet.kill(first)
        await fleet.kill(second)
        with pytest.raises(NodeUnavailable):
            await answering(fleet.pool)


async def test_an_error_object_is_an_answer_and_asks_no_second_node() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        head = await fleet.pool.client("http").call("eth_getBlockByNumber", "0xffff", False)
        assert head is None
        assert sum(node.requests.count("eth_getBlockByNumber") for node in fleet.nodes) == 2 * 2 + 1


class LackingNode(FleetNode):
    """Lacks the block, or the method, of every call but those of the pool's own looks."""

    def _answer(self, call: Mapping[str, Any]) -> dict[str, object]:
        refusals = {"who": (-32000, "header not found"), "eth_blockNumber": (-32601, "no method")}
        if call["method"] not in refusals:
            return super()._answer(call)
        code, message = refusals[call["method"]]
        return {"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": message}}


async def test_what_a_node_lacks_another_one_is_asked_for() -> None:
    lacking, whole = LackingNode("lacking"), FleetNode("whole")
    async with a_fleet(lacking, whole) as fleet:
        for _ in range(4):
            assert await answering(fleet.pool) == "whole"
        assert await fleet.pool.client("http").call("eth_blockNumber") == hex(whole.height)
        await fleet.kill(whole)
        with pytest.raises(RpcError, match="header not found"):
            await answering(fleet.pool)


async def test_a_pinned_client_never_turns_to_another_node() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        pinned = fleet.pool.client("operator").pinned()
        name = await pinned.call("who")
        used = first if name == "first" else second
        used.mode = "hung"
        with pytest.raises(NodeUnavailable) as raised:
            await pinned.call("who")
        assert raised.value.kind == "timeout"
        assert await fleet.pool.client("operator").pinned().call("who") != name


ENDLESS = replace(QUICK, timeout=3600.0, hedge_after=3600.0, pinned_timeout=3600.0)


async def test_the_newest_block_is_read_at_the_next_node_while_the_best_one_is_silent() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    policy = replace(ENDLESS, silent_after=3600.0, hedge_newest_after=0.05)
    async with a_fleet(first, second, policy=policy) as fleet:
        name = await answering(fleet.pool)
        silent, other = (first, second) if name == "first" else (second, first)
        silent.mode = "hung"
        view = await ChainView.newest(Node(fleet.pool.client("operator")))
        assert await view.node.chain_id() == CHAIN_ID
        count = len(silent.requests)
        for _ in range(3):
            assert await answering(fleet.pool) == other.name
            await ChainView.newest(Node(fleet.pool.client("operator")))
        assert len(silent.requests) == count, "the node that answers is the one in use"


class WithoutHead(FleetNode):
    """Answers an error, or something else than a block, instead of its newest one."""

    head: tuple[str, object] | None = None

    def _answer(self, call: Mapping[str, Any]) -> dict[str, object]:
        reply = super()._answer(call)
        if call["params"][:1] != ["latest"] or self.head is None:
            return reply
        return {key: reply[key] for key in ("jsonrpc", "id")} | dict([self.head])


@pytest.mark.parametrize(
    "head",
    [("error", {"code": -32000, "message": "out of order"}), ("result", "zz"), ("result", {})],
)
async def test_the_newest_block_is_read_at_the_next_node_if_the_best_one_shows_none(
    head: tuple[str, object],
) -> None:
    nodes = [WithoutHead("first"), WithoutHead("second")]
    async with a_fleet(*nodes, policy=ENDLESS) as fleet:
        name = await answering(fleet.pool, "operator")
        (faulty,) = [node for node in nodes if node.name == name]
        faulty.head = head
        node = Node(fleet.pool.client("operator"))
        view = await ChainView.newest(node)
        assert view.head.number == 100
        assert await answering(fleet.pool, "operator") != name
        for each in nodes:
            each.head = head
        with pytest.raises((NodeUnavailable, RpcError)):
            await ChainView.newest(node)


async def test_no_block_below_the_silent_nodes_own_counts_as_the_newest() -> None:
    first, second = FleetNode("first", height=101), FleetNode("second")
    policy = replace(ENDLESS, silent_after=3600.0, hedge_newest_after=0.05)
    async with a_fleet(first, second, policy=policy) as fleet:
        first_member = fleet.pool.members[0]
        fleet.pool.use("operator", first_member)
        first.mode = "hung"
        count = len(second.requests)
        read = asyncio.create_task(ChainView.newest(Node(fleet.pool.client("operator"))))

        async def second_was_asked() -> bool:
            return len(second.requests) > count and fleet.pool.members[1].in_flight == 0

        await until(second_was_asked)
        assert not read.done()
        second.height = 101
        read.cancel()
        view = await ChainView.newest(Node(fleet.pool.client("operator")))
        assert view.head.number == 101


async def test_only_usable_nodes_are_asked_for_the_newest_block_of_a_silent_one() -> None:
    first, distrusted, third = FleetNode("first"), FleetNode("distrusted"), FleetNode("third")
    policy = replace(ENDLESS, silent_after=0.2, hedge_newest_after=0.05)
    async with a_fleet(first, distrusted, third, policy=policy) as fleet:
        fleet.pool.members[1].distrust("block_hash")
        first.mode = third.mode = "hung"
        count = len(distrusted.requests)
        with pytest.raises(NodeUnavailable):
            await ChainView.newest(Node(fleet.pool.client("operator")))
        assert len(distrusted.requests) == count


async def test_a_pinned_read_of_a_silent_node_is_given_up_before_that_of_a_slow_one() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    policy = replace(ENDLESS, silent_after=0.2)
    async with a_fleet(first, second, policy=policy) as fleet:
        pinned = fleet.pool.client("operator").pinned()
        name = await pinned.call("who")
        used = first if name == "first" else second
        used.mode = "hung"
        with pytest.raises(NodeUnavailable, match="answered nothing") as raised:
            await pinned.call("who")
        assert raised.value.kind == "timeout"
        assert await answering(fleet.pool) != name


async def test_a_slow_read_of_a_node_that_answers_other_calls_is_waited_for() -> None:
    nodes = [SlowNode("first"), SlowNode("second")]
    policy = replace(ENDLESS, silent_after=0.5)
    async with a_fleet(*nodes, policy=policy) as fleet:
        name = await fleet.pool.client("operator").pinned().call("who")
        (slow,) = [node for node in nodes if node.name == name]
        assert slow.was_probed.is_set()


async def test_many_slow_reads_of_a_node_share_one_other_call() -> None:
    nodes = [SlowNode("first"), SlowNode("second")]
    policy = replace(ENDLESS, silent_after=0.5)
    async with a_fleet(*nodes, policy=policy) as fleet:
        for node in nodes:
            node.chain_id_calls = 0
        client = fleet.pool.client("operator").pinned()
        await asyncio.gather(*(client.call("who") for _ in range(10)))
    assert sum(node.chain_id_calls for node in nodes) == 1


class SlowNode(FleetNode):
    """Answers `who` only when another call has been answered, and a pause has passed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.was_probed = asyncio.Event()
        self.chain_id_calls = 0

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        if isinstance(body, dict) and body["method"] == "eth_chainId":
            self.chain_id_calls += 1
            self.was_probed.set()
            await asyncio.sleep(0.1)
        if isinstance(body, dict) and body["method"] == "who":
            await self.was_probed.wait()
            await asyncio.sleep(2 * 0.5)  # No longer would a silent node be waited for.
        return await super().handle(request)


async def test_others_are_the_usable_nodes_at_or_past_a_height() -> None:
    nodes = [FleetNode("a", height=100), FleetNode("b", height=101), FleetNode("c", height=10)]
    async with a_fleet(*nodes) as fleet:
        pinned = fleet.pool.client("operator").pinned()
        name = await pinned.call("who")
        assert name in {"a", "b"}
        others = [await rpc.call("who") for rpc in pinned.others(0)]
        assert others == [({"a", "b"} - {name}).pop()]
        assert pinned.others(102) == []
        assert not pinned.is_alone


async def test_a_node_without_usable_others_is_alone() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        await fleet.kill(second)
        for _ in range(3):
            await fleet.watch.check_all()
        pinned = fleet.pool.client("operator").pinned()
        assert not pinned.is_alone, "the other node answered just now and may be back"

        async def is_alone() -> bool:
            return pinned.is_alone

        await until(is_alone)


async def test_the_only_node_left_is_looked_at_at_once() -> None:
    slow = replace(QUICK, breaker=BreakerPolicy(first_pause=60.0, longest_pause=60.0))
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second, policy=slow, is_watched=True) as fleet:
        first.mode = second.mode = "http_500"

        async def answers() -> bool:
            try:
                return bool(await answering(fleet.pool))
            except NodeUnavailable:
                return False

        for _ in range(5):
            assert not await answers()
        first.mode = "ok"
        await until(answers)


async def test_of_two_nodes_that_contradict_each_other_neither_is_alone() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        for member in fleet.pool.members:
            member.distrust("block_hash")
        pinned = fleet.pool.client("operator").pinned()
        assert not pinned.is_alone
        assert len(pinned.others(0)) == 1


async def test_a_trusted_node_is_not_confirmed_by_a_distrusted_one() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        fleet.pool.members[1].distrust("nonce")
        pinned = fleet.pool.client("operator").pinned()
        assert pinned.is_alone
        assert pinned.others(0) == []


async def test_a_transaction_may_be_published_to_every_node() -> None:
    nodes = [FleetNode("a"), FleetNode("b"), FleetNode("c")]
    async with a_fleet(*nodes) as fleet:
        publishers = fleet.pool.client("operator").publishers()
        names = {await rpc.call("who") for rpc in publishers}
        assert names == {"a", "b", "c"}


async def test_a_cancelled_request_says_nothing_about_its_node() -> None:
    async with a_fleet(FleetNode("a"), FleetNode("b")) as fleet:
        for node in fleet.nodes:
            node.delay_seconds = 30.0
        request = asyncio.create_task(answering(fleet.pool))
        await until(lambda: _a_node_was_asked(fleet.nodes))
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert all(not report.errors for report in fleet.pool.reports())


async def _a_node_was_asked(nodes: list[FleetNode]) -> bool:
    return any("who" in node.requests for node in nodes)


async def test_a_node_that_contradicts_itself_is_asked_last() -> None:
    first, second = FleetNode("first"), FleetNode("second")
    async with a_fleet(first, second) as fleet:
        pinned = fleet.pool.client("operator").pinned()
        name = await pinned.call("who")
        pinned.report_contradiction("nonce")
        assert await answering(fleet.pool) != name
        assert Unfit.DISAGREES in {report.reason for report in fleet.pool.reports()}


async def test_nodes_of_one_host_have_distinct_names_without_path_or_password() -> None:
    urls = ["https://me:hunter2@node.example/v2/key", "https://node.example/v2/other", "ws://h:1"]
    async with NodePool(urls) as pool:
        names = [report.name for report in pool.reports()]
    assert names == ["node.example:443", "node.example:443 #2", "h:1"]
