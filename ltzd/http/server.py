"""Serves a Sanic application inside ltzd's event loop, until a stop event is set.

`Sanic.run` would take over the process, its signals and its logging; ltzd's roles share one loop.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from sanic import Sanic
from sanic.http.constants import Stage
from sanic.server.protocols.http_protocol import HttpProtocol

from ltzd.concurrency.clock import loop_time
from ltzd.errors import Misconfigured
from ltzd.http.accept_backlog import ignore_new_connections
from ltzd.http.connections.protocol import BoundedProtocol
from ltzd.http.connections.tls import TlsHandshakes, TlsProtocol
from ltzd.http.sanic_app import App

BACKLOG = 1024
UNREAD_BYTES = 128 * 1024
"""The kernel keeps so much of answers that a client does not read; accepted sockets inherit it.
Linux takes twice as much, and several MiB where nothing is set."""
CLOSE_POLL_SECONDS = 0.02
LAST_HANDSHAKE_SECONDS = 0.2
QUIET_SECONDS = 1.0
CLIENT_SECONDS = 6.0
"""How long a server that stops waits for the rest of a request, and for a client that does not read
its answer. Requests that are being answered have the app's grace."""
STOP_NOW_SECONDS = 6.0
"""How long a server that stops at once waits for requests in flight."""
TLS_SHUTDOWN_SECONDS = 2.0
"""How long closing a TLS connection waits for the client's close_notify."""

_start_lock = asyncio.Lock()


async def serve(  # noqa: PLR0913 (where, three events of a life, and TLS)
    app: App,
    host: str,
    port: int,
    stop: asyncio.Event,
    *,
    on_listening: Callable[[int], None] | None = None,
    tls: ssl.SSLContext | None = None,
    tls_handshake_seconds: float = 10.0,
    draining: asyncio.Event | None = None,
    stop_now: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set, then wait for requests in flight for at most the app's grace, and
    for clients for at most CLIENT_SECONDS of it.

    Once `stop_now` is set, the server waits for STOP_NOW_SECONDS more at most.

    Once `draining` is set, each response ends its connection while new connections are still
    accepted: set it some seconds before `stop`, and reverse proxies send nothing more on a
    connection that `stop` closes.

    With `tls` the server accepts HTTPS only. Connections count towards the app's limit before their
    handshake, and are closed if it takes longer than `tls_handshake_seconds`.

    `on_listening` is called with the port, which the system chooses if `port` is 0. Raises
    Misconfigured if the address cannot be bound.
    """
    app.ctx.draining = draining
    listener = listen(host, port)
    try:
        server = await _server(app, listener, tls, tls_handshake_seconds)
    except BaseException:
        listener.close()
        raise
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(loop()) for loop in app.ctx.loops]
        try:
            if on_listening is not None:
                on_listening(listener.getsockname()[1])
            await stop.wait()
            if draining is not None and draining.is_set():
                await _accept_backlog(listener)
                await _finish_quiet_connections(server.connections)
        finally:
            server.server.close()
            grace_seconds = getattr(app.ctx, "grace_seconds", 0.0)
            if stop.is_set():
                await _drain(server.connections, grace_seconds, stop_now or asyncio.Event())
            for connection in tuple(server.connections):
                connection.abort()
            for connection in app.ctx.connection_limit.all():
                connection.end_now()
            Sanic.unregister_app(app)
            for loop in loops:
                loop.cancel()


async def _server(
    app: App, listener: socket.socket, tls: ssl.SSLContext | None, tls_handshake_seconds: float
) -> Any:
    # The first app makes Sanic rewrite its own classes without unused signals (TOUCHUP). Sanic
    # cannot do that twice in a process, so apps start one at a time.
    async with _start_lock:
        return await _start(app, listener, tls, tls_handshake_seconds)


async def _start(
    app: App, listener: socket.socket, tls: ssl.SSLContext | None, tls_handshake_seconds: float
) -> Any:
    app.config.TOUCHUP = not getattr(HttpProtocol, "__touched__", False)
    protocol: Any = BoundedProtocol
    if tls is not None:
        handshakes = TlsHandshakes(tls, tls_handshake_seconds, TLS_SHUTDOWN_SECONDS)
        protocol = partial(TlsProtocol, handshakes)
    server: Any = await app.create_server(
        sock=listener,
        backlog=BACKLOG,
        protocol=protocol,
        # Connections wait in the socket's backlog until the router is ready.
        asyncio_server_kwargs={"start_serving": False},
    )
    await server.startup()
    await server.before_start()
    await server.start_serving()
    await server.after_start()
    return server


def listen(host: str, port: int) -> socket.socket:
    """Raises Misconfigured, whose message says what to do."""
    listener = _bind(host, port)
    try:
        listener.listen(BACKLOG)
    except OSError as error:  # another program bound the port at the same time, and listened first
        listener.close()
        raise Misconfigured(_why_unusable(host, port, error)) from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNREAD_BYTES)
    return listener


def require_free(host: str, port: int) -> None:
    """Raises Misconfigured if another program listens there; no client can connect meanwhile."""
    _bind(host, port).close()


def _bind(host: str, port: int) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Misconfigured(
            f"{host} is not an address of this machine: set another host."
        ) from error
    family, _, _, _, address = addresses[0]
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise Misconfigured(_why_unusable(host, port, error)) from error
    return bound


def _why_unusable(host: str, port: int, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"Port {port} needs privileges that this user does not have: choose one above 1023."
    return (
        f"Port {port} on {host} cannot be used ({error.strerror}): "
        "stop the program that uses it, or choose another port."
    )


async def _accept_backlog(listener: socket.socket) -> None:
    with suppress(OSError):
        ignore_new_connections(listener)
        # One turn of the event loop accepts all that wait; handshakes under way need some more.
        await asyncio.sleep(LAST_HANDSHAKE_SECONDS)


async def _finish_quiet_connections(connections: Iterable[Any]) -> None:
    """Wait until each connection is busy, or has been without a request for QUIET_SECONDS.

    The request of a connection that has just been accepted may be on its way.
    """
    deadline = loop_time() + QUIET_SECONDS
    while loop_time() < deadline:
        if not any(_is_idle(connection) for connection in tuple(connections)):
            return
        await asyncio.sleep(CLOSE_POLL_SECONDS)


async def _drain(connections: set[Any], grace_seconds: float, stop_now: asyncio.Event) -> None:
    """Close idle connections now, and busy ones after their response; return when time is up.

    Connections whose client makes the server wait are ended after CLIENT_SECONDS.
    """
    begun_at = loop_time()
    deadline = begun_at + grace_seconds
    is_cut_short = False
    late: set[Any] = set()
    _close_idle(tuple(connections))
    while connections and loop_time() < deadline:
        # Sanic has no event for the end of a connection.
        await asyncio.sleep(CLOSE_POLL_SECONDS)
        _close_idle(tuple(connections))
        if loop_time() >= begun_at + CLIENT_SECONDS:
            late = _end_late(connections, late)
        if stop_now.is_set() and not is_cut_short:
            deadline, is_cut_short = min(deadline, loop_time() + STOP_NOW_SECONDS), True


def _end_late(connections: Iterable[Any], late: set[Any]) -> set[Any]:
    """End the connections of `late` whose client is still awaited; returns the other awaited ones.

    After a freeze of this machine the client's bytes may be there, and are read before the next
    check.
    """
    awaited = {connection for connection in connections if connection.awaited is not None}
    for connection in awaited & late:
        if connection.is_receiving:
            connection.end_slow_request()
        else:
            connection.abort()
    return awaited - late


def _close_idle(connections: Iterable[Any]) -> None:
    for connection in connections:
        if _is_idle(connection):
            connection.close()
        else:
            http = connection.http
            if http is not None:
                http.keep_alive = False


def _is_idle(connection: Any) -> bool:
    """Sanic's own answer takes a request that has arrived, and was not read yet, for idleness."""
    is_waiting = connection.http is None or connection.http.stage is Stage.IDLE
    return is_waiting and not connection.recv_buffer
