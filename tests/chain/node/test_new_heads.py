"""Heads arrive over WebSocket; a silent, dropped or useless socket is noticed and opened again."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import WSMsgType, web
from msgspec.structs import replace

from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.new_heads import HeadSocketPolicy, NewHeads
from ltzd.chain.node.rpc import Rpc
from ltzd.dev.services.chain import Kind
from ltzd.values import hex_of
from tests.support.chain.chains import a_chain
from tests.support.ports import free_port
from tests.support.rows.core import a_hash, running
from tests.support.waiting import until

QUICK = HeadSocketPolicy(
    first_pause_seconds=0.01,
    longest_pause_seconds=0.05,
    least_silence_seconds=0.05,
    unknown_silence_seconds=0.1,
)
PATIENT = replace(QUICK, unknown_silence_seconds=3600.0, least_silence_seconds=3600.0)


def a_head(number: int) -> Header:
    parent = a_hash(f"head {number - 1}")
    return Header(number, a_hash(f"head {number}"), parent, 1_700_000_000, bytes(256), None)


@dataclass
class HeadServer:
    """A node's WebSocket. Tests say what it announces, and when it drops its sockets."""

    url: str
    sockets: list[web.WebSocketResponse] = field(default_factory=list)
    connections: int = 0
    refuses: bool = False

    async def announce(self, number: int, timestamp: int = 1_700_000_000) -> None:
        head = {
            "number": hex(number),
            "timestamp": hex(timestamp),
            "hash": hex_of(a_head(number).hash),
        }
        message = {"jsonrpc": "2.0", "method": "eth_subscription"}
        await self.send(message | {"params": {"subscription": "0x1", "result": head}})

    async def send(self, message: object) -> None:
        for socket in self.sockets:
            await socket.send_str(json.dumps(message))

    async def drop(self) -> None:
        for socket in list(self.sockets):
            await socket.close()

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.connections += 1
        async for message in socket:
            assert message.type is WSMsgType.TEXT
            assert json.loads(message.data)["params"] == ["newHeads"]
            reply: dict[str, object] = {"jsonrpc": "2.0", "id": 1}
            error = {"code": -32601, "message": "unknown method"}
            await socket.send_json(
                reply | ({"error": error} if self.refuses else {"result": "0x1"})
            )
            self.sockets.append(socket)
        self.sockets = [each for each in self.sockets if each is not socket]
        return socket

    async def has_subscriber(self) -> bool:
        return bool(self.sockets)


@asynccontextmanager
async def a_head_server() -> AsyncIterator[HeadServer]:
    port = free_port()
    server = HeadServer(f"ws://127.0.0.1:{port}")
    application = web.Application()
    application.router.add_get("/", server.handle)
    runner = web.AppRunner(application, shutdown_timeout=0, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[HeadServer]:
    async with a_head_server() as server:
        yield server


@pytest.mark.parametrize("kind", ["tester", "anvil"])
async def test_a_dev_chain_announces_its_heads_at_its_http_port(kind: Kind) -> None:
    async with a_chain(kind) as chain, Rpc(chain.rpc_url) as rpc:
        heads = NewHeads([chain.rpc_url.replace("http", "ws", 1)])
        async with running(heads.run()):

            async def is_open() -> bool:
                return heads.sockets[0].is_open

            await until(is_open)
            for number in (1, 2, 3):
                await rpc.call("evm_mine")
                assert await heads.wait(10) == number


async def test_the_highest_announcement_since_the_last_call_counts(server: HeadServer) -> None:
    heads = NewHeads([server.url], PATIENT)
    async with running(heads.run()):
        await until(server.has_subscriber)
        await server.announce(7)
        await server.announce(9)
        await server.announce(8)

        async def all_read() -> bool:
            return heads._announced == 9

        await until(all_read)
        assert await heads.wait(10) == 9
        assert await heads.wait(0.01) in {None, 8}


async def test_a_dropped_socket_is_opened_again(server: HeadServer) -> None:
    heads = NewHeads([server.url], QUICK)
    async with running(heads.run()):
        for number in (1, 2, 3):
            await until(server.has_subscriber)
            await server.announce(number)
            assert await heads.wait(10) == number
            await server.drop()


async def test_a_socket_that_omits_a_head_that_was_read_elsewhere_is_silent(
    server: HeadServer,
) -> None:
    heads = NewHeads([server.url], QUICK)
    async with running(heads.run()):
        await until(server.has_subscriber)

        async def is_open() -> bool:
            return heads.sockets[0].is_open

        await until(is_open)
        heads.observe(a_head(4))
        heads.observe(a_head(5))

        async def has_come_again() -> bool:
            return server.connections > 1

        await until(has_come_again)


async def test_the_first_head_that_is_read_may_be_older_than_the_subscriptions(
    server: HeadServer,
) -> None:
    heads = NewHeads([server.url], replace(QUICK, unknown_silence_seconds=0.02))
    async with running(heads.run()):
        await until(server.has_subscriber)
        heads.observe(a_head(5))
        await asyncio.sleep(0.1)
        await server.announce(6)
        assert await heads.wait(10) == 6
    assert server.connections == 1


async def test_a_socket_is_silent_after_three_block_times(server: HeadServer) -> None:
    heads = NewHeads([server.url], replace(QUICK, unknown_silence_seconds=3600.0))
    async with running(heads.run()):
        await until(server.has_subscriber)
        for number in range(8):
            await server.announce(number)
            assert await heads.wait(10) == number

        async def has_come_again() -> bool:
            return server.connections > 1

        await until(has_come_again)


async def test_a_chain_that_stands_still_keeps_its_socket(server: HeadServer) -> None:
    heads = NewHeads([server.url], replace(QUICK, unknown_silence_seconds=0.02))
    async with running(heads.run()):
        await until(server.has_subscriber)
        await server.announce(1)
        assert await heads.wait(10) == 1
        heads.observe(a_head(1))
        await asyncio.sleep(0.1)
        await server.announce(2)
        assert await heads.wait(10) == 2
    assert server.connections == 1


async def test_another_nodes_socket_goes_on_meanwhile(server: HeadServer) -> None:
    heads = NewHeads([f"ws://127.0.0.1:{free_port()}", server.url], QUICK)
    async with running(heads.run()):
        await until(server.has_subscriber)
        await server.announce(4)
        assert await heads.wait(10) == 4


async def test_a_node_without_the_subscription_is_asked_again_much_later(
    server: HeadServer,
) -> None:
    server.refuses = True
    heads = NewHeads([server.url], QUICK)
    async with running(heads.run()):

        async def has_come() -> bool:
            return server.connections > 0

        await until(has_come)
        assert await heads.wait(0.2) is None
    assert server.connections == 1


async def test_a_head_that_several_nodes_announce_counts_once(server: HeadServer) -> None:
    async with a_head_server() as other:
        heads = NewHeads([server.url, other.url], PATIENT)
        async with running(heads.run()):
            await until(server.has_subscriber)
            await until(other.has_subscriber)
            await server.announce(1)
            assert await heads.wait(10) == 1
            await other.announce(1)
            await other.announce(2)
            assert await heads.wait(10) == 2
            heads.observe(a_head(3))
            await server.announce(3)
            await server.announce(4)
            assert await heads.wait(10) == 4


@pytest.mark.parametrize(
    "head",
    [
        {"number": "7"},
        {},
        None,
        {"number": "0xzz", "timestamp": "0x1"},
        {"number": "0x1", "timestamp": hex(2**2000), "hash": "0x" + "00" * 32},
        {"number": hex(2**63), "timestamp": "0x1", "hash": "0x" + "00" * 32},
    ],
)
async def test_a_malformed_head_closes_the_socket(server: HeadServer, head: object) -> None:
    heads = NewHeads([server.url], QUICK)
    async with running(heads.run()):
        await until(server.has_subscriber)
        await server.send({"method": "eth_subscription", "params": {"result": head}})

        async def has_come_again() -> bool:
            return server.connections > 1

        await until(has_come_again)


async def test_a_head_is_announced_whatever_else_its_message_holds(server: HeadServer) -> None:
    heads = NewHeads([server.url], PATIENT)
    head = {"number": "0x7", "timestamp": "0x1", "hash": "0x" + "11" * 32}
    async with running(heads.run()):
        await until(server.has_subscriber)
        params = {"result": head | {"transactions": ["0x" + "22" * 32] * 20_000, "x": [{}] * 9}}
        await server.send({"method": "eth_subscription", "params": params, "x": [[]] * 9})
        assert await heads.wait(10) == 7


async def test_a_message_that_is_longer_than_any_head_closes_the_socket(server: HeadServer) -> None:
    heads = NewHeads([server.url], QUICK)
    async with running(heads.run()):
        await until(server.has_subscriber)
        await server.send({"method": "another", "x": "y" * 2 * 1024 * 1024})

        async def has_come_again() -> bool:
            return server.connections > 1

        await until(has_come_again)


async def test_an_absurd_height_is_not_passed_on(server: HeadServer) -> None:
    heads = NewHeads([server.url], PATIENT)
    async with running(heads.run()):
        await until(server.has_subscriber)
        await server.announce(10)
        assert await heads.wait(10) == 10
        await server.announce(10**12)
        await server.announce(11)
        assert await heads.wait(10) == 11
