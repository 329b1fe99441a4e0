"""The tester chain's server: JSON-RPC by POST and by WebSocket, both at "/".

It lives in memory and ends with the process: `serve` runs until it is cancelled or the process
gets SIGTERM or SIGINT. `running` is the same for use inside another program.
"""

import argparse
import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import WSMsgType, web

from ltzd.dev.tester_chain.chain import Chain
from ltzd.dev.tester_chain.methods import METHODS
from ltzd.dev.tester_chain.miner import Miner
from ltzd.dev.tester_chain.node import Method, Node
from ltzd.dev.tester_chain.rpc import answer
from ltzd.dev.tester_chain.subscriptions import Subscriptions
from ltzd.errors import Misconfigured

DEFAULT_CHAIN_ID: Final = 131_277_322_940_537
_BODY_BYTES_AT_MOST: Final = 64 * 1024 * 1024
_FAREWELL_SECONDS: Final = 0.2
# py-evm holds the interpreter for this long before the server gets its turn.
_SWITCH_SECONDS: Final = 0.0001
_BACKLOG: Final = 1_024


async def serve(
    port: int, block_time: float, *, host: str = "127.0.0.1", chain_id: int = DEFAULT_CHAIN_ID
) -> None:
    """Serve until cancelled or told to end. Raises Misconfigured where the port is taken."""
    told_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        # Only the main thread of a program can listen to signals.
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            loop.add_signal_handler(one, told_to_end.set)
    sys.setswitchinterval(_SWITCH_SECONDS)
    async with running(port, block_time, host=host, chain_id=chain_id) as server:
        sys.stdout.write(f"listening on {server.url}\n")
        sys.stdout.flush()
        ending = asyncio.create_task(told_to_end.wait())
        try:
            await asyncio.wait({ending, server.mining}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
        if server.mining.done():
            await server.mining


@dataclass(frozen=True)
class Server:
    url: str
    chain: Chain
    mining: asyncio.Task[None]
    """Ends only by a fault, which whoever waits for it gets to see."""


@asynccontextmanager
async def running(
    port: int = 0,
    block_time: float = 0,
    *,
    host: str = "127.0.0.1",
    chain_id: int = DEFAULT_CHAIN_ID,
) -> AsyncIterator[Server]:
    """A tester chain that serves until the block ends; port 0 takes a free one."""
    if block_time < 0:
        raise Misconfigured("The block time is negative; give 0 to mine on demand.")
    listener = _listener(host, port)
    chain = Chain(chain_id)
    node = Node(chain, Miner(chain, block_time))
    runner = web.AppRunner(_application(node), access_log=None, shutdown_timeout=_FAREWELL_SECONDS)
    await runner.setup()
    mining = asyncio.create_task(node.miner.run())
    try:
        await web.SockSite(runner, listener, backlog=_BACKLOG).start()
        yield Server(f"http://{host}:{listener.getsockname()[1]}", chain, mining)
    finally:
        mining.cancel()
        await asyncio.gather(mining, return_exceptions=True)
        await runner.cleanup()
        chain.close()


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m ltzd.dev.tester_chain --port P [--block-time S]`."""
    parser = argparse.ArgumentParser(prog="tester_chain", description="An Ethereum dev chain.")
    parser.add_argument("--port", type=int, default=8545)
    parser.add_argument("--block-time", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--chain-id", type=int, default=DEFAULT_CHAIN_ID)
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING)
    try:
        asyncio.run(serve(options.port, options.block_time, chain_id=options.chain_id))
    except Misconfigured as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            reason = "is in use by another program; stop it or choose another with --port"
        else:
            reason = f"cannot be opened ({error}); choose another with --port"
        raise Misconfigured(f"Port {port} on {host} {reason}.") from error
    return listener


def _application(node: Node) -> web.Application:
    application = web.Application(client_max_size=_BODY_BYTES_AT_MOST)

    async def post(request: web.Request) -> web.Response:
        reply = await answer(node, METHODS, await request.read())
        return web.Response(body=reply, content_type="application/json")

    async def get(request: web.Request) -> web.StreamResponse:
        socket_of_request = web.WebSocketResponse(max_msg_size=_BODY_BYTES_AT_MOST)
        if not socket_of_request.can_prepare(request):
            return web.Response(text="JSON-RPC: POST a request, or open a WebSocket.\n")
        await socket_of_request.prepare(request)
        await _converse(node, socket_of_request)
        return socket_of_request

    application.router.add_post("/", post)
    application.router.add_get("/", get)
    return application


async def _converse(node: Node, connection: web.WebSocketResponse) -> None:
    subscriptions = Subscriptions(node.chain)
    methods = {**METHODS, **subscriptions.methods()}
    writing = asyncio.create_task(_write(connection, subscriptions))
    try:
        await _read(node, connection, subscriptions, methods)
    finally:
        subscriptions.close()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def _read(
    node: Node,
    connection: web.WebSocketResponse,
    subscriptions: Subscriptions,
    methods: Mapping[str, Method],
) -> None:
    async for message in connection:
        if message.type in {WSMsgType.TEXT, WSMsgType.BINARY}:
            reply = await answer(node, methods, message.data)
            if reply:
                subscriptions.outbox.put_nowait(reply)


async def _write(connection: web.WebSocketResponse, subscriptions: Subscriptions) -> None:
    while (message := await subscriptions.outbox.get()) is not None:
        await connection.send_str(message.decode())
    await connection.close(message=b"too slow a listener")
