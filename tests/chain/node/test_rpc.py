"""JSON-RPC with servers that answer late, out of order, in part or not at all."""

import gzip
import json
import traceback
from typing import Any

import pytest

from ltzd.chain.node.rpc import Rpc, RpcCall, RpcError, RpcPolicy
from ltzd.errors import NodeUnavailable
from tests.support.chain.scripted_node import (
    NEVER,
    HttpAnswer,
    Respond,
    a_server,
    always,
    error,
    refusing,
    result,
)

CALLS: list[RpcCall] = [("eth_a", (1,)), ("eth_b", (2,)), ("eth_c", (3,))]


def echo(request: Any) -> list[object]:
    """Answers each call with its own parameter."""
    return [result(each, each["params"][0]) for each in request]


async def test_a_call_answers_its_result() -> None:
    async with a_server(lambda request: result(request, request["params"])) as rpc:
        assert await rpc.call("eth_echo", 1, "two") == [1, "two"]


async def test_a_null_result_is_an_answer() -> None:
    async with a_server(always(None)) as rpc:
        assert await rpc.call("eth_getBlockByHash", "0x") is None


async def test_an_error_object_is_raised_with_its_revert_data() -> None:
    def respond(request: Any) -> object:
        error_object = {"code": 3, "message": "execution reverted", "data": {"data": "0xdeadbeef"}}
        return {"id": request["id"], "error": error_object}

    async with a_server(respond) as rpc:
        with pytest.raises(RpcError, match="execution reverted") as raised:
            await rpc.call("eth_call")
    assert (raised.value.code, raised.value.data) == (3, b"\xde\xad\xbe\xef")


@pytest.mark.parametrize(
    "error_object",
    [
        "no",
        {"code": "E_LIMIT", "message": 5},
        {"code": None},
        {"message": "no", "data": "0xabc"},
        {"message": "no", "data": ["0x"]},
        {"code": [1], "message": "no"},
    ],
)
async def test_an_odd_error_object_is_still_an_rpc_error(error_object: object) -> None:
    async with a_server(lambda request: {"id": request["id"], "error": error_object}) as rpc:
        with pytest.raises(RpcError):
            await rpc.call("eth_call")


async def test_an_error_text_holds_no_line_break_and_no_code_for_a_terminal() -> None:
    text = "fine\nltzd: run: rm\r\x1b[2J\x1b]0;title\x07\x9b31m\u202e\u2028end"
    async with a_server(lambda request: error(request, text)) as rpc:
        with pytest.raises(RpcError) as raised:
            await rpc.call("eth_chainId")
    assert raised.value.message.isprintable()
    assert raised.value.message.startswith("fine ltzd: run: rm")


async def test_replies_in_disorder_are_put_in_order() -> None:
    async with a_server(lambda request: list(reversed(echo(request)))) as rpc:
        assert await rpc.batch(CALLS) == [1, 2, 3]


async def test_a_failed_call_of_a_batch_keeps_its_place() -> None:
    def respond(request: Any) -> object:
        return [
            result(request[0], 1),
            error(request[1], "too many logs", -32005),
            result(request[2], 3),
        ]

    async with a_server(respond) as rpc:
        first, failed, third = await rpc.batch(CALLS)
    assert (first, third) == (1, 3)
    assert isinstance(failed, RpcError)
    assert (failed.message, failed.code) == ("too many logs", -32005)


async def test_an_empty_batch_sends_no_request() -> None:
    assert await Rpc("http://127.0.0.1:1").batch([]) == []


@pytest.mark.parametrize(
    "respond",
    [
        lambda request: echo(request)[:2],
        lambda request: [],
        lambda request: [result(request[0], 1)] * 3,
        lambda request: [{"id": each["id"]} for each in request],
        lambda request: [{"id": [], "result": 1}, {"id": {}, "result": 1}, None],
        lambda request: [{"result": 1}, 5, "x"],
        lambda request: {"id": None, "result": 1},
        lambda request: {"id": None, "error": {"code": -32600, "message": "batches are too large"}},
        lambda request: None,
    ],
    ids=range(9),
)
async def test_a_batch_without_all_its_replies_is_no_answer(respond: Respond) -> None:
    async with a_server(respond) as rpc:
        with pytest.raises(NodeUnavailable):
            await rpc.batch(CALLS)


async def test_a_refused_batch_raises_its_reason() -> None:
    refused: Respond = lambda request: error({"id": None}, "daily request count exceeded")  # noqa: E731
    async with a_server(refused) as rpc:
        with pytest.raises(NodeUnavailable, match="daily request count exceeded"):
            await rpc.batch(CALLS)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b"\xff\xfe", b"[1", b"5", b'"no"', b"{}"])
async def test_a_body_that_is_not_json_rpc_is_no_answer(body: bytes) -> None:
    async with a_server(lambda _request: body) as rpc:
        with pytest.raises(NodeUnavailable):
            await rpc.call("eth_blockNumber")


async def test_a_refused_key_is_no_answer_of_the_node() -> None:
    async with a_server(refusing("App is inactive"), status=401) as rpc:
        with pytest.raises(NodeUnavailable) as raised:
            await rpc.call("eth_sendRawTransaction", "0x")
    assert raised.value.kind == "http_status"


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_gateways_page_is_no_answer(status: int) -> None:
    async with a_server(lambda _request: b"Bad Gateway", status=status) as rpc:
        with pytest.raises(NodeUnavailable):
            await rpc.call("eth_blockNumber")


async def test_an_error_object_counts_with_a_status_of_the_server() -> None:
    async with a_server(refusing("nonce too low"), status=500) as rpc:
        with pytest.raises(RpcError, match="nonce too low"):
            await rpc.call("eth_sendRawTransaction", "0x")


async def test_an_answer_that_does_not_come_is_unknown() -> None:
    async with a_server(lambda _request: NEVER, timeout_seconds=0.05) as rpc:
        with pytest.raises(NodeUnavailable, match="in time"):
            await rpc.call("eth_sendRawTransaction", "0x")


async def test_an_unreachable_node_is_unavailable() -> None:
    async with Rpc("http://127.0.0.1:1") as rpc:
        with pytest.raises(NodeUnavailable):
            await rpc.call("eth_chainId")


async def test_an_rpc_outside_its_context_is_a_programming_error() -> None:
    with pytest.raises(RuntimeError):
        await Rpc("http://127.0.0.1:1").call("eth_chainId")


# --- networks and gateways ----------------------------------------------------------------------


async def test_a_compressed_answer_is_read() -> None:
    def respond(request: Any) -> object:
        body = json.dumps(result(request, "x" * 5_000)).encode()
        return HttpAnswer(gzip.compress(body), headers={"Content-Encoding": "gzip"})

    async with a_server(respond) as rpc:
        assert await rpc.call("eth_x") == "x" * 5_000


@pytest.mark.parametrize("cut", [-40, 12, 200])
async def test_a_truncated_compressed_answer_is_no_answer(cut: int) -> None:
    def respond(request: Any) -> object:
        body = json.dumps(result(request, [f"{number:x}" * 9 for number in range(500)])).encode()
        return HttpAnswer(gzip.compress(body)[:cut], headers={"Content-Encoding": "gzip"})

    async with a_server(respond) as rpc:
        with pytest.raises(NodeUnavailable) as raised:
            await rpc.call("eth_x")
    assert raised.value.kind == "malformed"


async def test_a_small_compressed_answer_that_unpacks_to_an_endless_one_is_cut_off() -> None:
    bomb = HttpAnswer(gzip.compress(b" " * 30_000_000), headers={"Content-Encoding": "gzip"})
    policy = RpcPolicy(max_response_bytes=1_000_000)
    async with a_server(lambda _request: bomb, policy=policy) as rpc:
        with pytest.raises(NodeUnavailable, match="longer than"):
            await rpc.call("eth_x")


async def test_a_doubled_reply_is_taken_once() -> None:
    async with a_server(lambda request: echo(request) * 2) as rpc:
        assert await rpc.batch(CALLS) == [1, 2, 3]


async def test_two_different_replies_to_one_call_are_no_answer() -> None:
    def respond(request: Any) -> object:
        return [*echo(request), result(request[1], "another")]

    async with a_server(respond) as rpc:
        answers = await rpc.outcomes(CALLS)
    assert (answers[0], answers[2]) == (1, 3)
    assert isinstance(answers[1], NodeUnavailable)


async def test_a_reply_to_a_call_that_was_not_made_is_ignored() -> None:
    async with a_server(lambda request: [*echo(request), result({"id": 999}, 9)]) as rpc:
        assert await rpc.batch(CALLS) == [1, 2, 3]


async def test_a_reply_to_another_call_is_no_answer() -> None:
    async with a_server(lambda request: result({"id": request["id"] + 1}, 7)) as rpc:
        with pytest.raises(NodeUnavailable, match="another call"):
            await rpc.call("eth_x")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    requests: list[Any] = []

    def respond(request: Any) -> object:
        requests.append(request)
        return HttpAnswer(b"", status, {"Location": "/"})

    async with a_server(respond) as rpc:
        with pytest.raises(NodeUnavailable) as raised:
            await rpc.call("eth_x")
    assert raised.value.kind == "http_status"
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"<html>", "malformed"),
        (HttpAnswer(b"Bad Gateway", 502), "http_status"),
        (HttpAnswer(b"", 403), "http_status"),
        (HttpAnswer(b"", 504), "timeout"),
        (NEVER, "timeout"),
    ],
    ids=range(5),
)
async def test_a_missing_answer_has_a_kind(answer: object, kind: str) -> None:
    async with a_server(lambda _request: answer, timeout_seconds=0.2) as rpc:
        with pytest.raises(NodeUnavailable) as raised:
            await rpc.call("eth_x")
    assert raised.value.kind == kind


async def test_a_node_that_is_not_there_refuses_the_connection() -> None:
    async with Rpc("http://127.0.0.1:1") as rpc:
        with pytest.raises(NodeUnavailable) as raised:
            await rpc.call("eth_x")
    assert raised.value.kind == "refused_connection"


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2hunter2@127.0.0.1:1/v3/0123456789abcdef?apikey=abcdefghijklmnop",
        "ftp://127.0.0.1:1/0123456789abcdef",
    ],
)
async def test_no_fault_shows_the_key_in_the_node_s_url(url: str) -> None:
    async with Rpc(url) as rpc:
        with pytest.raises(NodeUnavailable) as raised:
            await rpc.call("eth_x")
    shown = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    for secret in ("hunter2", "0123456789abcdef", "abcdefghijklmnop"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("before", "message"), [("project ", "project … is disabled"), ("x" * 990, "x" * 990 + "…")]
)
async def test_a_node_that_repeats_the_key_does_not_put_it_into_an_error(
    before: str, message: str
) -> None:
    refused = refusing(f"{before}0123456789abcdef is disabled")
    async with a_server(refused) as server, Rpc(f"{server.url}/v3/0123456789abcdef") as rpc:
        with pytest.raises(RpcError) as raised:
            await rpc.call("eth_x")
    assert raised.value.message.startswith(message)
