"""JSON-RPC with servers that answer late, out of order, in part or not at all."""

from typing import Any

import pytest

from ltzd.chain.node.rpc import Rpc, RpcCall, RpcError
from ltzd.errors import NodeUnavailable
from tests.support.chain.scripted_node import (
    NEVER,
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


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_gateways_page_is_no_answer(status: int) -> None:
    async with a_server(lambda _request: b"Bad Gateway", status=status) as rpc:
        with pytest.raises(NodeUnavailable):
            await rpc.call("eth_blockNumber")


async def test_an_error_object_counts_whatever_its_status() -> None:
    async with a_server(refusing("nonce too low"), status=500) as rpc:
        with pytest.raises(RpcError, match="nonce too low"):
            await rpc.call("eth_sendRawTransaction", "0x")


async def test_an_answer_that_does_not_come_is_unknown() -> None:
    async with a_server(lambda _request: NEVER, timeout_seconds=0.05) as rpc:
        with pytest.raises(NodeUnavailable, match="Timeout"):
            await rpc.call("eth_sendRawTransaction", "0x")


async def test_an_unreachable_node_is_unavailable() -> None:
    async with Rpc("http://127.0.0.1:1") as rpc:
        with pytest.raises(NodeUnavailable):
            await rpc.call("eth_chainId")


async def test_an_rpc_outside_its_context_is_a_programming_error() -> None:
    with pytest.raises(RuntimeError):
        await Rpc("http://127.0.0.1:1").call("eth_chainId")
