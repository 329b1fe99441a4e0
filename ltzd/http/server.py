"""Runs a Sanic application inside somebody else's event loop, until told to stop.

`Sanic.run` would take over the process, its signals and its logging; ltzd's roles share one loop.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any

from sanic import Sanic
from sanic.server.protocols.http_protocol import HttpProtocol

from ltzd.concurrency.clock import loop_time
from ltzd.errors import Misconfigured
from ltzd.http.app import App

BACKLOG = 1024
_starting = asyncio.Lock()
CLOSE_POLL_SECONDS = 0.02
HANDSHAKE_SECONDS = 10.0
"""A client that says nothing is hung up on."""
TLS_GOODBYE_SECONDS = 2.0
"""How long the end of a TLS connection waits for the client's word."""


async def serve(
    app: App,
    host: str,
    port: int,
    stop: asyncio.Event,
    *,
    on_listening: Callable[[int], None] | None = None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until `stop` is set, then let requests in flight finish within the app's grace.

    With `tls` it speaks HTTPS and nothing else. `on_listening` is told the port, which the system
    chooses for port 0. Raises Misconfigured when the address cannot be had.
    """
    listener = listen(host, port)
    try:
        server = await _server(app, listener, tls)
    except BaseException:
        listener.close()
        raise
    try:
        if on_listening is not None:
            on_listening(listener.getsockname()[1])
        await stop.wait()
    finally:
        server.server.close()
        await _let_go(server.connections, getattr(app.ctx, "grace_seconds", 0.0), stop)
        Sanic.unregister_app(app)


async def _server(app: App, listener: socket.socket, tls: ssl.SSLContext | None) -> Any:
    # Sanic rewrites its own classes once, leaving out signals that nobody listens to. A second
    # app in the process must not: the rewritten source is gone. So they start one by one.
    async with _starting:
        return await _started(app, listener, tls)


async def _started(app: App, listener: socket.socket, tls: ssl.SSLContext | None) -> Any:
    app.config.TOUCHUP = not getattr(HttpProtocol, "__touched__", False)
    timeouts = {
        "ssl_handshake_timeout": HANDSHAKE_SECONDS,
        "ssl_shutdown_timeout": TLS_GOODBYE_SECONDS,
    }
    server: Any = await app.create_server(
        sock=listener,
        backlog=BACKLOG,
        ssl=tls,
        # Connections wait in the socket's queue until the router is ready.
        asyncio_server_kwargs={"start_serving": False, **(timeouts if tls else {})},
    )
    await server.startup()
    await server.before_start()
    await server.start_serving()
    await server.after_start()
    return server


def listen(host: str, port: int) -> socket.socket:
    """Raises Misconfigured with what to do about it."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Misconfigured(f"{host} is no address of this machine: set another host.") from error
    family, _, _, _, address = found[0]
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except PermissionError as error:
        raise Misconfigured(
            f"Port {port} needs privileges that this user does not have: choose one above 1023."
        ) from error
    except OSError as error:
        raise Misconfigured(
            f"Port {port} on {host} cannot be used ({error.strerror}): "
            "stop the program that has it, or choose another port."
        ) from error


async def _let_go(connections: set[Any], grace_seconds: float, stop: asyncio.Event) -> None:
    """Close idle connections now, busy ones after their answer, the rest when time is up."""
    if stop.is_set():
        await _drain(connections, grace_seconds)
    for connection in tuple(connections):
        connection.abort()


async def _drain(connections: set[Any], grace_seconds: float) -> None:
    deadline = loop_time() + grace_seconds
    _close_idle(tuple(connections))
    while connections and loop_time() < deadline:
        # Sanic keeps no event for a connection's end.
        await asyncio.sleep(CLOSE_POLL_SECONDS)
        _close_idle(tuple(connections))


def _close_idle(connections: Iterable[Any]) -> None:
    for connection in connections:
        if not connection.close_if_idle():
            connection.http.keep_alive = False
