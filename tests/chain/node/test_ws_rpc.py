"""JSON-RPC over a WebSocket whose server is late, lossy, silent or gone."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from ltzd.chain.node.new_heads import HeadSocketPolicy, NewHeads
from ltzd.chain.node.node import Node
from ltzd.chain.node.opening import open_rpc
from ltzd.chain.node.rpc import Rpc, RpcError, RpcPolicy
from ltzd.chain.node.ws_rpc import WsPolicy, WsRpc
from ltzd.concurrency.clock import loop_time
from ltzd.dev.services.chain import Kind
from ltzd.errors import NodeUnavailable
from tests.support.chain.chains import a_chain
from tests.support.chain.limited_node import LimitedNode
from tests.support.chain.scripted_node import HttpAnswer, always, refusing, result
from tests.support.loop_turns import counted_turns
from tests.support.rows.core import running
from tests.support.waiting import until

QUICK = RpcPolicy(timeout_seconds=2.0)
QUICK_SOCKET = WsPolicy(ping_seconds=0.1, first_pause_seconds=0.01, longest_pause_seconds=0.05)

Handle = Callable[[web.WebSocketResponse, Any], Awaitable[None]]


@dataclass
class SocketServer:
    """`handle` gets each message; `sockets` are those that were opened."""

    handle: Handle
    url: str = ""
    sockets: list[web.WebSocketResponse] = field(default_factory=list)
    answers_pings: bool = True

    async def has_opened(self) -> bool:
        return len(self.sockets) >= 1

    async def has_reopened(self) -> bool:
        return len(self.sockets) >= 2


def answering(respond: Callable[[Any], object]) -> Handle:
    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        await socket.send_str(json.dumps(respond(message)))

    return handle


@asynccontextmanager
async def a_socket_server(handle: Handle) -> AsyncIterator[SocketServer]:
    server = SocketServer(handle)

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=server.answers_pings)
        await socket.prepare(request)
        server.sockets.append(socket)
        async for message in socket:
            if message.type == web.WSMsgType.TEXT:
                await server.handle(socket, message.json())
        return socket

    application = web.Application()
    application.router.add_get("/", serve)
    application.router.add_get("/moved", _moved)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"ws://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield server
    finally:
        await runner.cleanup()


async def _moved(_request: web.Request) -> web.Response:
    raise web.HTTPFound("/")


@asynccontextmanager
async def a_client(
    handle: Handle, policy: RpcPolicy = QUICK
) -> AsyncIterator[tuple[WsRpc, SocketServer]]:
    async with (
        a_socket_server(handle) as server,
        WsRpc(server.url, policy, ws_policy=QUICK_SOCKET) as rpc,
    ):
        yield rpc, server


async def test_a_call_answers_its_result() -> None:
    async with a_client(answering(lambda call: result(call, call["params"]))) as (rpc, _):
        assert await rpc.call("eth_echo", 1, "two") == [1, "two"]


async def test_an_error_object_is_raised() -> None:
    async with a_client(answering(refusing("header not found"))) as (rpc, _):
        with pytest.raises(RpcError, match="header not found"):
            await rpc.call("eth_call")


async def test_answers_in_another_order_reach_their_callers() -> None:
    held: list[Any] = []

    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        held.append(message)
        if len(held) == 5:
            for call in reversed(held):
                await socket.send_str(json.dumps(result(call, call["params"][0])))

    async with a_client(handle) as (rpc, server):
        answers = await asyncio.gather(*(rpc.call("eth_x", number) for number in range(5)))
    assert answers == [0, 1, 2, 3, 4]
    assert len(server.sockets) == 1


async def test_a_batch_answers_in_its_order() -> None:
    node = LimitedNode()

    def respond(calls: Any) -> object:
        answers: Any = node(calls)
        return answers[::-1]

    async with a_client(answering(respond)) as (rpc, _):
        calls = [("eth_x", (number,)) for number in range(250)]
        assert await rpc.batch(calls) == list(range(250))
    assert node.sizes[0] == 100


async def test_a_batch_refused_without_an_id_is_asked_in_smaller_ones() -> None:
    node = LimitedNode(items=10)

    def respond(message: Any) -> object:
        answer = node(message)
        return answer.body if isinstance(answer, HttpAnswer) else answer

    async with a_client(answering(respond)) as (rpc, _):
        calls = [("eth_x", (number,)) for number in range(40)]
        assert await rpc.batch(calls) == list(range(40))
    assert node.repeats() == []


async def test_messages_that_answer_nothing_are_ignored() -> None:
    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        await socket.send_str("no JSON")
        await socket.send_str(json.dumps({"id": 999, "result": 0}))
        await socket.send_str(json.dumps({"method": "eth_subscription", "params": {}}))
        await socket.send_str(json.dumps([None, 5]))
        await socket.send_str(json.dumps(result(message, 7)))
        await socket.send_str(json.dumps(result(message, 8)))

    async with a_client(handle) as (rpc, _):
        assert await rpc.call("eth_x") == 7
        assert await rpc.call("eth_x") == 7


async def test_a_request_on_a_socket_that_drops_is_unknown_and_the_next_is_answered() -> None:
    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        if len(server.sockets) == 1:
            await socket.close()
        else:
            await socket.send_str(json.dumps(result(message, 1)))

    async with a_client(handle) as (rpc, server):
        with pytest.raises(NodeUnavailable) as raised:
            await rpc.call("eth_sendRawTransaction", "0x")
        assert raised.value.kind == "refused_connection"
        await until(server.has_reopened)
        assert await rpc.call("eth_x") == 1


async def test_a_socket_that_answers_no_ping_is_lost() -> None:
    async def handle(_socket: web.WebSocketResponse, _message: Any) -> None:
        """Never answers."""

    async with a_socket_server(handle) as server:
        server.answers_pings = False
        policy = RpcPolicy(timeout_seconds=20.0)
        async with WsRpc(server.url, policy, ws_policy=QUICK_SOCKET) as rpc:
            with pytest.raises(NodeUnavailable) as raised:
                await rpc.call("eth_x")
    assert raised.value.kind == "refused_connection"


async def test_a_request_without_an_answer_times_out() -> None:
    async def handle(_socket: web.WebSocketResponse, _message: Any) -> None:
        """Never answers, but answers pings."""

    async with a_client(handle, RpcPolicy(timeout_seconds=0.1)) as (rpc, _):
        with pytest.raises(NodeUnavailable) as raised:
            await rpc.batch([("eth_x", (1,)), ("eth_y", (2,))])
        assert raised.value.kind == "timeout"
        assert rpc.limits.batch_items == 1


async def test_a_node_that_is_gone_is_told_at_once_and_found_again() -> None:
    async with a_client(answering(always(1))) as (rpc, server):
        assert await rpc.call("eth_x") == 1
        port = server.url.rsplit(":", 1)[1].strip("/")
    async with WsRpc(f"ws://127.0.0.1:{port}/", QUICK, ws_policy=QUICK_SOCKET) as rpc:
        with pytest.raises(NodeUnavailable) as raised:
            await rpc.call("eth_x")
    assert raised.value.kind == "refused_connection"


async def test_a_socket_that_was_open_for_long_and_unused_is_opened_after_the_first_pause() -> None:
    policy = WsPolicy(first_pause_seconds=0.001, longest_pause_seconds=0.01)

    async def is_long_open() -> bool:
        return loop_time() - opened > policy.longest_pause_seconds

    with capture_logs() as logs:
        async with (
            a_socket_server(answering(always(1))) as server,
            WsRpc(server.url, QUICK, ws_policy=policy),
        ):
            await until(server.has_opened)
            for _ in range(3):
                opened = loop_time()
                await until(is_long_open)
                await server.sockets.pop().close()
                await until(server.has_opened)
    assert {line["again_in_seconds"] for line in logs} == {policy.first_pause_seconds}


async def test_a_node_that_stays_away_is_logged_once() -> None:
    attempts = 0

    async def drop(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.close()

    async def has_tried_again() -> bool:
        return attempts >= 4

    server = await asyncio.start_server(drop, "127.0.0.1", 0)
    url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    heads_policy = HeadSocketPolicy(first_pause_seconds=0.01, longest_pause_seconds=0.05)
    with capture_logs() as logs:
        async with server:
            async with WsRpc(url, QUICK, ws_policy=QUICK_SOCKET):
                await until(has_tried_again)
            attempts = 0
            async with running(NewHeads([url], heads_policy).run()):
                await until(has_tried_again)
    assert [line["event"] for line in logs] == ["node.socket_lost", "node.head_socket_lost"]


async def test_an_answer_of_endless_length_ends_the_socket() -> None:
    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        calls = message if isinstance(message, list) else [message]
        answers = [result(call, "x" * 400) for call in calls]
        await socket.send_str(json.dumps(answers if isinstance(message, list) else answers[0]))

    policy = RpcPolicy(timeout_seconds=5.0, max_response_bytes=1_000)
    async with a_client(handle, policy) as (rpc, server):
        with pytest.raises(NodeUnavailable):
            await rpc.batch([("eth_x", (number,)) for number in range(4)])
        await until(server.has_reopened)
        assert rpc.limits.batch_items < 4


async def test_an_answer_longer_than_any_honest_one_is_no_answer_and_the_socket_stays() -> None:
    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        calls = message if isinstance(message, list) else [message]
        answers = [{**result(call, "0x1"), "x": "y" * sizes.pop()} for call in calls]
        await socket.send_str(json.dumps(answers if isinstance(message, list) else answers[0]))

    async with a_client(handle) as (rpc, server):
        for size in (70_000, 1_000_000):
            sizes = [size]
            with pytest.raises(NodeUnavailable, match="longer than 65536 bytes") as raised:
                await rpc.call("eth_chainId")
            assert raised.value.kind == "oversized"
        sizes = [70_000, 1_000]
        assert await rpc.batch([("eth_chainId", ()), ("eth_gasPrice", ())]) == ["0x1", "0x1"]
        sizes = [1_000_000]
        assert await rpc.call("eth_getBlockByNumber", "0x1", False) == "0x1"
    assert len(server.sockets) == 1


async def test_a_long_answer_full_of_tiny_values_is_no_answer() -> None:
    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        await socket.send_str(json.dumps({**result(message, "0x1"), "x": [[]] * 200_000}))

    async with a_client(handle) as (rpc, _):
        with pytest.raises(NodeUnavailable, match="more values") as raised:
            await rpc.call("eth_getBlockByNumber", "0x1", False)
    assert raised.value.kind == "oversized"


async def test_an_answer_longer_than_any_honest_one_is_not_even_decoded() -> None:
    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        await socket.send_str(json.dumps({**result(message, "0x1"), "x": [[]] * 200_000}))

    async with a_client(handle) as (rpc, _):
        with pytest.raises(NodeUnavailable, match="longer than 65536 bytes"):
            await rpc.call("eth_chainId")


async def test_a_message_that_the_socket_does_not_take_is_blamed_on_no_short_answer() -> None:
    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        if message["method"] == "eth_getLogs":
            await socket.send_str(json.dumps(result(message, "x" * 200_000)))

    policy = RpcPolicy(timeout_seconds=5.0, max_response_bytes=100_000)
    async with a_client(handle, policy) as (rpc, _):
        short = asyncio.create_task(rpc.call("eth_chainId"))
        with pytest.raises(RpcError, match="longer than"):
            await rpc.call("eth_getLogs", {})
        with pytest.raises(NodeUnavailable) as raised:
            await short
    assert raised.value.kind == "refused_connection"


async def test_a_long_message_to_no_request_is_ignored() -> None:
    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        for stray in ({"id": 99}, [{"id": 99}], {"method": "eth_subscription"}, "x"):
            await socket.send_str(json.dumps(stray) + " " * 300_000)
        await socket.send_str(json.dumps(result(message, "0x1")))

    async with a_client(handle) as (rpc, _):
        assert await rpc.call("eth_chainId") == "0x1"


async def _ping(socket: web.WebSocketResponse) -> None:
    await socket.ping()


async def _send_nothing(socket: web.WebSocketResponse) -> None:
    await socket.send_str("")


@pytest.mark.parametrize("send", [_ping, _send_nothing])
async def test_a_flood_of_tiny_messages_leaves_turns_of_the_event_loop(
    send: Callable[[web.WebSocketResponse], Awaitable[None]],
) -> None:
    """All of them arrive at once, before the answer."""
    before = 0

    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        nonlocal before
        before = turns.count
        for _ in range(960):
            await send(socket)
        await socket.send_str(json.dumps(result(message, 1)))

    with counted_turns() as turns:
        async with a_client(handle) as (rpc, _):
            assert await rpc.call("eth_x") == 1
            assert turns.count - before >= 20


async def test_a_node_that_sends_messages_without_requests_loses_its_socket() -> None:
    async def handle(socket: web.WebSocketResponse, message: Any) -> None:
        await socket.send_str(json.dumps(result(message, 1)))
        for _ in range(1_001):
            await socket.send_str("{}")

    async with a_client(handle) as (rpc, server):
        assert await rpc.call("eth_x") == 1
        await until(server.has_reopened)


async def test_a_redirect_is_not_followed() -> None:
    async with (
        a_socket_server(answering(always(1))) as server,
        WsRpc(f"{server.url}moved", QUICK, ws_policy=QUICK_SOCKET) as rpc,
    ):
        with pytest.raises(NodeUnavailable):
            await rpc.call("eth_x")
        assert server.sockets == []


async def test_a_url_says_how_its_node_is_reached() -> None:
    assert isinstance(open_rpc("ws://node"), WsRpc)
    assert isinstance(open_rpc("wss://node"), WsRpc)
    assert isinstance(open_rpc("https://node"), Rpc)


@pytest.mark.parametrize("kind", ["tester", "anvil"])
async def test_a_real_chain_answers_over_its_websocket_as_over_http(kind: Kind) -> None:
    async with (
        a_chain(kind) as chain,
        Rpc(chain.rpc_url) as http,
        WsRpc(chain.rpc_url.replace("http://", "ws://")) as socket,
    ):
        assert await Node(socket).chain_id() == await Node(http).chain_id()
        assert await Node(socket).block("latest") == await Node(http).block("latest")
        headers = await Node(socket).headers(range(150))
        assert headers == await Node(http).headers(range(150))
        with pytest.raises(RpcError):
            await socket.call("eth_noSuchMethod")


async def test_a_client_outside_its_context_is_a_programming_error() -> None:
    with pytest.raises(RuntimeError):
        await WsRpc("ws://127.0.0.1:1").call("eth_chainId")
