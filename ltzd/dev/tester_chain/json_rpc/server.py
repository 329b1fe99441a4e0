"""The tester chain's server: JSON-RPC over HTTP POST and WebSocket, both at "/".

`serve` runs until it is cancelled or the process receives SIGTERM or SIGINT. `running` is the same
server for use inside another program. The chain is lost when the process ends.
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
from typing import Final

import msgspec
from aiohttp import WSMsgType, web

from ltzd.dev.tester_chain.chain import TesterChain
from ltzd.dev.tester_chain.json_rpc.cross_origin import loopback_pages
from ltzd.dev.tester_chain.json_rpc.filters import Filters
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, RpcMethod
from ltzd.dev.tester_chain.json_rpc.methods import METHODS
from ltzd.dev.tester_chain.json_rpc.protocol import answer
from ltzd.dev.tester_chain.json_rpc.subscriptions import Subscriptions
from ltzd.dev.tester_chain.miner import Miner
from ltzd.errors import Misconfigured

DEFAULT_CHAIN_ID: Final = 131_277_322_940_537
_BODY_BYTES_AT_MOST: Final = 64 * 1024 * 1024
_SHUTDOWN_SECONDS: Final = 0.2
# The longest time that py-evm holds the interpreter before the event loop runs.
_SWITCH_SECONDS: Final = 0.0001
_BACKLOG: Final = 1_024


async def serve(
    port: int, block_time: float, *, host: str = "127.0.0.1", chain_id: int = DEFAULT_CHAIN_ID
) -> None:
    """Serve until cancelled or signalled. Raises Misconfigured if the port is taken."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Only the main thread of a program can handle signals.
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            loop.add_signal_handler(number, stop.set)
    sys.setswitchinterval(_SWITCH_SECONDS)
    async with running(port, block_time, host=host, chain_id=chain_id) as server:
        sys.stdout.write(f"listening on {server.url}\n")
        sys.stdout.flush()
        ending = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({ending, server.mining}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
        if server.mining.done():
            await server.mining


class RunningServer(msgspec.Struct, frozen=True):
    url: str
    chain: TesterChain
    mining: asyncio.Task[None]
    """Ends only by an exception, which awaiting it raises."""


@asynccontextmanager
async def running(
    port: int = 0,
    block_time: float = 0,
    *,
    host: str = "127.0.0.1",
    chain_id: int = DEFAULT_CHAIN_ID,
) -> AsyncIterator[RunningServer]:
    """A tester chain that serves until the context ends; port 0 takes a free one."""
    if block_time < 0:
        raise Misconfigured("The block time is negative; give 0 to mine on demand.")
    listener = _listener(host, port)
    chain = TesterChain(chain_id)
    context = MethodContext(chain, Miner(chain, block_time), Filters(chain))
    runner = web.AppRunner(
        _application(context), access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS
    )
    await runner.setup()
    mining = asyncio.create_task(context.miner.run())
    try:
        await web.SockSite(runner, listener, backlog=_BACKLOG).start()
        yield RunningServer(f"http://{host}:{listener.getsockname()[1]}", chain, mining)
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


def _application(context: MethodContext) -> web.Application:
    application = web.Application(client_max_size=_BODY_BYTES_AT_MOST, middlewares=[loopback_pages])

    async def post(request: web.Request) -> web.Response:
        reply = await answer(context, METHODS, await request.read())
        return web.Response(body=reply, content_type="application/json")

    async def get(request: web.Request) -> web.StreamResponse:
        websocket = web.WebSocketResponse(max_msg_size=_BODY_BYTES_AT_MOST)
        if not websocket.can_prepare(request):
            return web.Response(text="JSON-RPC: POST a request, or open a WebSocket.\n")
        await websocket.prepare(request)
        await _handle_websocket(context, websocket)
        return websocket

    application.router.add_post("/", post)
    application.router.add_get("/", get)
    return application


async def _handle_websocket(context: MethodContext, connection: web.WebSocketResponse) -> None:
    subscriptions = Subscriptions(context.chain)
    methods = {**METHODS, **subscriptions.methods()}
    writing = asyncio.create_task(_write_messages(connection, subscriptions))
    try:
        await _read_messages(context, connection, subscriptions, methods)
    finally:
        subscriptions.close()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def _read_messages(
    context: MethodContext,
    connection: web.WebSocketResponse,
    subscriptions: Subscriptions,
    methods: Mapping[str, RpcMethod],
) -> None:
    async for message in connection:
        if message.type in {WSMsgType.TEXT, WSMsgType.BINARY}:
            reply = await answer(context, methods, message.data)
            if reply:
                subscriptions.outbox.put_nowait(reply)


async def _write_messages(connection: web.WebSocketResponse, subscriptions: Subscriptions) -> None:
    while (message := await subscriptions.outbox.get()) is not None:
        await connection.send_str(message.decode())
    await connection.close(message=b"the subscriber reads too slowly")
