"""Requests have the sizes and the rate that a node accepts, and none is repeated unchanged."""

import asyncio
import inspect
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ltzd.chain.node.answers import bounds
from ltzd.chain.node.calls import LOGS
from ltzd.chain.node.learned_limits import LimitsPolicy, NodeLimits
from ltzd.chain.node.refusals import RefusalKind
from ltzd.chain.node.rpc import RpcCall, RpcError, RpcPolicy
from ltzd.chain.node.sending import CallSender
from ltzd.errors import NodeUnavailable
from tests.support.chain.limited_node import LimitedNode, Wording, refused_batch
from tests.support.chain.scripted_node import NEVER, HttpAnswer, a_server, always, error, result

PUBLISH = "eth_sendRawTransaction"
ROOT = Path(__file__).resolve().parents[3]


def numbered(count: int, method: str = "eth_x") -> list[RpcCall]:
    return [(method, (number,)) for number in range(count)]


def each_refused(message: str, code: int = -32000, *, status: int = 200) -> Wording:
    """dRPC's way: an array of the same error."""

    def answer(size: int) -> object:
        return HttpAnswer(
            [{"id": i, "error": {"code": code, "message": message}} for i in range(size)], status
        )

    return answer


async def test_a_large_batch_goes_out_in_chunks_and_keeps_its_order() -> None:
    node = LimitedNode()
    async with a_server(node) as rpc:
        assert await rpc.batch(numbered(950)) == list(range(950))
        assert await rpc.batch(numbered(950)) == list(range(950))
    assert node.sizes[0] == 100
    assert max(node.sizes) < 200


@pytest.mark.parametrize(
    ("limit", "wording"),
    [
        (10, refused_batch("batch too large", -32600)),
        (10, refused_batch("batch limit 10 exceeded: 100 requests given")),
        (10, lambda _size: [error({"id": None}, "batch limit 10 exceeded")]),
        (10, refused_batch("too many RPC calls in batch request", -32014)),
        (10, refused_batch("Number of requests exceeds max batch size", -32005)),
        (10, lambda _size: HttpAnswer(b"<h1>413 Request Entity Too Large</h1>", 413)),
        (10, lambda _size: HttpAnswer(b"Gateway Time-out", 504)),
        (3, refused_batch("no such luck, friend", -32000)),
        (1, refused_batch("Batched requests are not supported by this server", -32005)),
        (1, refused_batch("Invalid Request", -32600, status=400)),
    ],
    ids=range(10),
)
async def test_a_refused_batch_is_asked_in_smaller_ones(limit: int, wording: Wording) -> None:
    node = LimitedNode(items=limit, items_wording=wording)
    async with a_server(node) as rpc:
        assert await rpc.batch(numbered(100)) == list(range(100))
        assert node.repeats() == []
        assert len(node.refused) <= 16
        node.refused.clear()
        for _ in range(4):
            assert await rpc.batch(numbered(100)) == list(range(100))
        assert len(node.refused) <= 10  # The limit is learned.


async def test_calls_of_a_batch_that_are_refused_one_by_one_are_asked_in_smaller_batches() -> None:
    node = LimitedNode(items=3)

    def respond(request: Any) -> object:
        if isinstance(request, list) and len(request) > 3:
            node.refused.append(len(request))
            text = "Batch of more than 3 requests are not allowed on free tier"
            return HttpAnswer([error(each, text, 31) for each in request], 500)
        return node(request)

    async with a_server(respond) as rpc:
        assert await rpc.batch(numbered(20)) == list(range(20))
    assert node.refused == [20]
    assert set(node.sizes) == {3, 2}


async def test_replies_left_out_for_their_size_are_asked_again() -> None:
    """geth answers the first calls, and the rest with an error."""
    received: list[int] = []

    def respond(request: Any) -> object:
        calls = request if isinstance(request, list) else [request]
        received.append(len(calls))
        answers = [
            result(call, call["params"][0])
            if place < 4
            else error(call, "response too large", -32003)
            for place, call in enumerate(calls)
        ]
        return answers if isinstance(request, list) else answers[0]

    async with a_server(respond) as rpc:
        assert await rpc.batch(numbered(30)) == list(range(30))
    assert received[0] == 30
    assert sum(received) < 80


async def test_bytes_of_a_request_are_limited_too() -> None:
    node = LimitedNode(body_bytes=20_000)
    calls: list[RpcCall] = [("eth_x", (f"{number:0>1000}",)) for number in range(90)]
    async with a_server(node) as rpc:
        assert await rpc.batch(calls) == [f"{number:0>1000}" for number in range(90)]
        assert node.repeats() == []
        node.refused.clear()
        await rpc.batch(calls)
        assert node.refused == []
        assert rpc.limits.batch_items == 100


async def test_an_answer_of_endless_length_is_cut_off() -> None:
    def respond(request: Any) -> object:
        if isinstance(request, list) and len(request) > 5:
            return b"[" + b" " * 3_000_000 + b"]"
        return [result(each, 1) for each in request]

    policy = RpcPolicy(max_response_bytes=1_000_000)
    async with a_server(respond, policy=policy) as rpc:
        assert await rpc.batch(numbered(10)) == [1] * 10
    async with a_server(lambda _request: b" " * 3_000_000, policy=policy) as rpc:
        with pytest.raises(NodeUnavailable, match="longer than 1000000 bytes"):
            await rpc.call("eth_x")


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (("eth_chainId", ()), 64 * 1024),
        (("eth_getBalance", ("0x", "latest")), 64 * 1024),
        ((PUBLISH, ("0x",)), 64 * 1024),
        (("eth_call", ({}, "latest")), 256 * 1024),
        (("eth_getBlockByNumber", ("latest", False)), 2 * 1024 * 1024),
        (("eth_getBlockByHash", ("0x", False)), 2 * 1024 * 1024),
        (("eth_getTransactionReceipt", ("0x",)), 8 * 1024 * 1024),
        (("eth_getLogs", ({"fromBlock": "0x1", "toBlock": "0x2"},)), 8 * 1024 * 1024),
    ],
)
async def test_an_answer_that_is_longer_than_any_honest_one_to_its_call_is_cut_off(
    call: RpcCall, most: int
) -> None:
    def respond(request: Any) -> object:
        answer = json.dumps([result(each, "0x1") for each in request]).encode()
        answer = answer if len(request) > 1 else answer[1:-1]
        return answer + b" " * (size - len(answer))

    async with a_server(lambda call: respond(call if isinstance(call, list) else [call])) as rpc:
        size = most
        assert await rpc.call(call[0], *call[1]) == "0x1"
        size = most + 1
        with pytest.raises((NodeUnavailable, RpcError), match=f"longer than {most} bytes"):
            await rpc.call(call[0], *call[1])
        if call[0] != "eth_getLogs":
            size = 2 * most
            assert await rpc.batch([call] * 2) == ["0x1"] * 2
            size = 2 * most + 1
            with pytest.raises(NodeUnavailable, match=f"longer than {most} bytes") as raised:
                await rpc.batch([call] * 2)
            assert raised.value.kind == "oversized"


async def test_a_block_with_its_transactions_may_be_longer_than_its_header() -> None:
    async with a_server(always("0x" + "ab" * 2 * 1024 * 1024)) as rpc:
        assert await rpc.call("eth_getBlockByNumber", "0x1", True)
        with pytest.raises(NodeUnavailable, match="longer than"):
            await rpc.call("eth_getBlockByNumber", "0x1", False)


def test_every_call_that_is_made_by_name_has_a_bound() -> None:
    sources = [path.read_text() for path in (ROOT / "ltzd" / "chain").rglob("*.py")]
    made = set(re.findall(r'"((?:eth|txpool|web3)_[A-Za-z]+)"', "".join(sources)))
    named = set(re.findall(r'"(\w+_\w+)"', inspect.getsource(bounds)))
    announced = {"eth_subscribe", "eth_subscription"}
    assert made - named == announced | {PUBLISH, LOGS}


async def test_a_node_that_refuses_everything_is_asked_twice() -> None:
    node = LimitedNode()

    def respond(request: Any) -> object:
        node(request)
        return error({"id": None}, "unauthorized: no such project")

    async with a_server(respond) as rpc:
        with pytest.raises(NodeUnavailable, match="no such project"):
            await rpc.batch(numbered(64))
    assert node.sizes == [64, 1]


async def test_publications_are_sent_in_their_order() -> None:
    node = LimitedNode(items=8)
    async with a_server(node) as rpc:
        assert await rpc.outcomes(numbered(50, PUBLISH)) == list(range(50))
    accepted = [each for each in node.requests if not isinstance(each, list) or len(each) <= 8]
    order = [
        call["params"][0]
        for each in accepted
        for call in (each if isinstance(each, list) else [each])
    ]
    assert order == list(range(50))


async def test_no_publication_is_sent_after_a_chunk_without_an_answer() -> None:
    node = LimitedNode()

    def respond(request: Any) -> object:
        calls = request if isinstance(request, list) else [request]
        answer = node(request)
        return b"" if calls[0]["params"][0] == 4 else answer

    limits = NodeLimits("node", LimitsPolicy(batch_items=4, most_batch_items=4))
    async with a_server(respond, limits=limits) as rpc:
        answers = await rpc.outcomes(numbered(20, PUBLISH))
    assert answers[:4] == [0, 1, 2, 3]
    assert all(isinstance(answer, NodeUnavailable) for answer in answers[4:])
    assert node.sizes == [4, 4]


async def test_a_batch_that_times_out_is_smaller_the_next_time() -> None:
    node = LimitedNode()

    def respond(request: Any) -> object:
        node(request)
        return NEVER

    async with a_server(respond, timeout_seconds=0.05) as rpc:
        for _ in range(3):
            with pytest.raises(NodeUnavailable) as raised:
                await rpc.batch(numbered(8))
            assert raised.value.kind == "timeout"
    assert node.sizes == [8, 4, 2]


async def test_a_batch_that_its_caller_gives_up_counts_as_timed_out() -> None:
    policy = RpcPolicy(slow_seconds=0.01)
    async with a_server(lambda _request: NEVER, policy=policy, timeout_seconds=1.0) as rpc:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await rpc.batch(numbered(8))
        assert rpc.limits.batch_items == 4


async def test_a_time_out_of_a_wide_range_narrows_the_range_and_not_the_batches() -> None:
    query = {"fromBlock": "0x1", "toBlock": hex(2_000), "address": []}
    async with a_server(lambda _request: NEVER, timeout_seconds=0.05) as rpc:
        with pytest.raises(NodeUnavailable):
            await rpc.batch([("eth_getLogs", (query,)), ("eth_getBlockByNumber", ("0x1", False))])
        assert rpc.limits.range_blocks == 1_000
        assert rpc.limits.batch_items == 100


# --- ranges of logs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "learned"),
    [
        (LimitedNode(blocks=800), 1_000),
        (LimitedNode(blocks=800, blocks_wording="Invalid request. Max range: 800"), 800),
        (LimitedNode(results=5_000, logs_of_a_block=3), 1_000),
    ],
    ids=["halved", "named", "results"],
)
async def test_a_refused_range_teaches_the_node_s_range(node: LimitedNode, learned: int) -> None:
    query = {"fromBlock": "0x1", "toBlock": hex(2_000)}
    async with a_server(node) as rpc:
        with pytest.raises(RpcError) as raised:
            await rpc.call("eth_getLogs", query)
        assert raised.value.refusal is not None
        assert rpc.limits.range_blocks <= max(learned, 1_999)
        assert rpc.limits.range_blocks >= learned


async def test_a_range_refused_by_a_gateway_is_a_refusal_of_the_call() -> None:
    async with a_server(lambda _request: HttpAnswer(b"Gateway Time-out", 504)) as rpc:
        with pytest.raises(RpcError) as raised:
            await rpc.call("eth_getLogs", {"fromBlock": "0x1", "toBlock": "0x64"})
        assert raised.value.refusal is not None
        assert raised.value.refusal.kind is RefusalKind.NODE_TIMEOUT
        with pytest.raises(NodeUnavailable):
            await rpc.call(PUBLISH, "0x00")


# --- rates --------------------------------------------------------------------------------------


def busy(times: int, answer: object) -> tuple[list[Any], Any]:
    """A node that refuses the first requests, and what it received."""
    requests: list[Any] = []

    def respond(request: Any) -> object:
        requests.append(request)
        if len(requests) <= times:
            return answer
        calls = request if isinstance(request, list) else [request]
        answers = [result(call, call["params"][0]) for call in calls]
        return answers if isinstance(request, list) else answers[0]

    return requests, respond


@pytest.mark.parametrize(
    "answer",
    [
        HttpAnswer(b"Too Many Requests", 429, {"Retry-After": "0.2"}),
        HttpAnswer({"code": -32007, "message": "50/second request limit reached"}, 429),
        error({"id": None}, "rate limit exceeded, retry in 200ms", -32005),
        HttpAnswer(b"", 503, {"Retry-After": "0.2"}),
    ],
    ids=range(4),
)
async def test_a_call_refused_for_its_rate_waits_and_is_sent_again(answer: object) -> None:
    requests, respond = busy(1, answer)
    async with a_server(respond, timeout_seconds=5.0) as rpc:
        begun = asyncio.get_running_loop().time()
        assert await rpc.call("eth_x", 5) == 5
        assert asyncio.get_running_loop().time() - begun > 0.1
        assert rpc.limits.calls_per_second is not None
    assert len(requests) == 2


async def test_a_pause_until_a_date_that_cannot_be_read_is_a_pause_of_no_known_length() -> None:
    date = f"Sun, 22 Nov {'9' * 20} 12:00:30 GMT"
    requests, respond = busy(1, HttpAnswer(b"", 429, {"Retry-After": date}))
    async with a_server(respond, timeout_seconds=30.0) as rpc:
        assert await rpc.call("eth_x", 5) == 5
    assert len(requests) == 2


async def test_only_the_calls_that_were_refused_for_their_rate_are_sent_again() -> None:
    received: list[list[int]] = []

    def respond(request: Any) -> object:
        calls = request if isinstance(request, list) else [request]
        received.append([call["params"][0] for call in calls])
        answers = [
            error(call, "Your app has exceeded its compute units per second capacity.", 429)
            if len(received) == 1 and call["params"][0] % 2
            else result(call, call["params"][0])
            for call in calls
        ]
        return answers if isinstance(request, list) else answers[0]

    async with a_server(respond, timeout_seconds=5.0) as rpc:
        assert await rpc.batch(numbered(6)) == [0, 1, 2, 3, 4, 5]
    assert received == [[0, 1, 2, 3, 4, 5], [1, 3, 5]]


async def test_a_batch_larger_than_the_rate_allows_at_once_gets_through() -> None:
    node = LimitedNode(
        items=25, items_wording=refused_batch("You've exceeded the RPS limit", -32005)
    )
    async with a_server(node, timeout_seconds=8.0) as rpc:
        assert await rpc.batch(numbered(100)) == list(range(100))
    assert node.repeats() == []


async def test_a_pause_that_is_longer_than_the_call_may_take_is_no_answer() -> None:
    requests, respond = busy(99, HttpAnswer(b"", 429, {"Retry-After": "30"}))
    async with a_server(respond, timeout_seconds=0.5) as rpc:
        for _ in range(3):
            with pytest.raises(NodeUnavailable) as raised:
                await rpc.call("eth_x", 1)
            assert raised.value.kind == "rate_limited"
    assert len(requests) == 1  # The node is not hammered.


async def test_a_node_that_refuses_for_ever_is_asked_a_bounded_number_of_times() -> None:
    requests, respond = busy(99, HttpAnswer(b"", 429, {"Retry-After": "0"}))
    async with a_server(respond, timeout_seconds=9.0) as rpc:
        with pytest.raises(NodeUnavailable):
            await rpc.call("eth_x", 1)
    assert len(requests) == RpcPolicy().rate_attempts


async def test_clients_of_one_node_share_what_was_learned() -> None:
    limits = NodeLimits("node")
    requests, respond = busy(99, HttpAnswer(b"", 429, {"Retry-After": "30"}))
    async with a_server(respond, timeout_seconds=0.3, limits=limits) as first:
        with pytest.raises(NodeUnavailable):
            await first.call("eth_x", 1)
        async with a_server(respond, timeout_seconds=0.3, limits=limits) as second:
            with pytest.raises(NodeUnavailable):
                await second.call("eth_x", 1)
    assert len(requests) == 1


async def test_no_more_requests_than_the_policy_allows_are_under_way() -> None:
    under_way, peak = 0, 0
    limits = NodeLimits("node", LimitsPolicy(batch_items=2, most_batch_items=2))

    class Counted:
        async def exchange(
            self, body: bytes, ids: Sequence[int], most: int, *, may_type_logs: bool = False
        ) -> Any:
            nonlocal under_way, peak
            under_way += 1
            peak = max(peak, under_way)
            await asyncio.sleep(0.001)
            under_way -= 1
            return [{"id": id_, "result": id_} for id_ in ids]

    sender = CallSender(Counted(), limits, RpcPolicy(connections=3))
    assert len(await sender.outcomes(numbered(60))) == 60
    assert peak == 3
