"""Sanic's protocol with ltzd's bounds of connections, and refusals before the application."""

import asyncio
import math
from contextlib import suppress
from time import monotonic
from typing import Any

from sanic.exceptions import BadRequest, RequestTimeout
from sanic.http.constants import Stage
from sanic.request import Request
from sanic.server.protocols.http_protocol import HttpProtocol

from ltzd.http.admission.refusals import EarlyRefusals
from ltzd.http.connections.handling import handle
from ltzd.http.connections.limit import ConnectionLimit
from ltzd.http.connections.stream import ReplyStream
from ltzd.http.requests.json_body import has_whole_body

_SILENCE_SECONDS = 5.0
"""After which the rest of a refused request's body is not awaited any longer."""

_FULL_BODY = b'{"error":"Too many connections are at work","code":"OVERLOADED"}'
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
) % (len(_FULL_BODY), _FULL_BODY)


class BoundedProtocol(HttpProtocol):
    """`refusals` is None for an application that refuses nothing."""

    HTTP_CLASS = ReplyStream
    __slots__ = (
        *("_address", "_answers", "_limit", "_refusals", "_was_held"),
        *("body_bytes", "handshake", "slowness"),
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        context = self.app.ctx
        self._limit: ConnectionLimit = context.connection_limit
        self._refusals: EarlyRefusals | None = context.refusals
        self._address = ""
        self._answers = 0
        self._was_held = False
        self.body_bytes = 0
        """The bytes of the request's body that its handler has read and keeps."""
        self.handshake: asyncio.Task[None] | None = None
        """The TLS handshake, which may be over."""
        self.slowness: tuple[tuple[object, ...], float] | None = None
        """The step of the client that the sweep has seen missing, and since when."""

    def _setup(self) -> None:
        super()._setup()  # type: ignore[no-untyped-call]
        self.request_handler = answer

    @property
    def is_open(self) -> bool:
        transport: Any = self.transport
        return transport is not None and not transport.is_closing()

    @property
    def can_write_now(self) -> bool:
        """Whether the connection is open, and its client reads what is written."""
        return self._can_write.is_set() and self.is_open

    @property
    def is_at_work(self) -> bool:
        """Whether a request that arrived whole is being answered."""
        http = self.http
        return bool(http) and has_whole_body(http)

    @property
    def is_receiving(self) -> bool:
        """Whether a request, or the rest of a refused one, has begun to arrive and is not whole."""
        http = self.http
        return http is not None and (http.stage is Stage.REQUEST or not has_whole_body(http))

    @property
    def awaited(self) -> tuple[object, ...] | None:
        """The next step of the client, as a value that changes with every step, or None."""
        transport: Any = self.transport
        if transport is None:  # aborted; `connection_lost` comes in a later turn of the event loop
            return None
        if not self._can_write.is_set():
            return "read", self._answers, transport.get_write_buffer_size()
        if not self.is_receiving:
            return None
        http = self.http
        return ("head" if http.request is None else "body"), self._answers

    @property
    def kept_bytes(self) -> int:
        """The bytes of the request that has not arrived whole."""
        return len(self.recv_buffer) + self.body_bytes

    def end_now(self) -> None:
        """Close without an answer; what was written is still sent for a while."""
        self._limit.closed(self, self._address)
        if self.handshake is not None:
            self.handshake.cancel()
        self.close()

    def end_slow_request(self) -> None:
        """Answer 408 to a request that does not arrive, and close."""
        http = self.http
        if http is None or self._task is None:
            return
        if http.stage is Stage.IDLE:  # answered already; the rest of its body does not come
            self.abort()  # type: ignore[no-untyped-call]
            return
        http.exception = RequestTimeout("The request did not arrive in time")
        _give_request(http)
        self._task.cancel()

    def count_once(self, transport: Any) -> bool:
        """Count the connection if it is not counted yet. Returns False if it must be refused."""
        self._address = _address_of(transport)
        return self._limit.opened(self, self._address)

    def connection_made(self, transport: Any) -> None:
        if self.count_once(transport):
            super().connection_made(transport)  # type: ignore[no-untyped-call]
        else:
            self.transport = transport
            transport.write(_FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.closed(self, self._address)
        if self.conn_info is None:
            return
        if self.http is not None:
            _give_request(self.http)
        super().connection_lost(exc)  # type: ignore[no-untyped-call]

    def data_received(self, data: bytes) -> None:
        if self.conn_info is None or self._refuse(data):
            return
        super().data_received(data)

    async def receive_more(self) -> None:
        """Wait for bytes; after an abort for `connection_lost`, which cancels the waiting task."""
        if self.transport is not None:
            self.transport.resume_reading()
        self._data_received.clear()
        await self._data_received.wait()

    def hold(self) -> None:
        """Read no more until `read_again`."""
        if self.is_open:
            transport: Any = self.transport
            transport.pause_reading()

    def read_again(self) -> None:
        """Read what has arrived meanwhile, and mark it as late until `mark_in_time`."""
        if self.is_open:
            self._was_held = True
            transport: Any = self.transport
            transport.resume_reading()

    def mark_in_time(self) -> None:
        """From now on bytes are read as soon as they come."""
        self._was_held = False

    def answered(self) -> None:
        """Count an answer; the connection is now the most recently used one."""
        self._answers += 1
        self.body_bytes = 0
        self._limit.used(self, self._address)

    def _refuse(self, data: bytes) -> bool:
        """Refuse the request before the application sees it; return whether that was done."""
        if self._refusals is None:
            return False
        http = self.http
        is_waiting = http is not None and http.stage is Stage.IDLE and http.request is None
        if (
            not is_waiting
            or self.recv_buffer
            or not self._can_write.is_set()
            or not http.keep_alive
        ):
            return False
        refusal = self._refusals.answer_to(data, self._address, was_held=self._was_held)
        if refusal is None:
            return False
        self._time = monotonic()
        transport: Any = self.transport
        answer, asker = refusal
        transport.write(answer)
        if not self._was_held:  # once only: its next request is read in time
            self.app.ctx.refusal_pace.hold(self, self._address, asker)
        return True


async def answer(request: Request) -> None:
    """Sanic's handler of every request, which always releases the request's slot at the end."""
    stream: Any = request.stream
    connection: BoundedProtocol = stream.protocol
    try:
        await handle(request)
    finally:
        slot = getattr(request.ctx, "slot", None)
        if slot is not None:
            slot.release()
        connection.answered()
    if stream.request_body is True and has_whole_body(stream):  # of a request that was refused
        del connection.recv_buffer[: stream.request_bytes_left]
        stream.request_body = None
    if stream.request_body:
        await _discard_rest(connection, stream)
    if connection.recv_buffer:
        await asyncio.sleep(0)  # a client that sends many requests at once waits for others


def _give_request(http: Any) -> None:
    """Give a stream whose head did not arrive whole a request: Sanic logs what it cancels."""
    if http.stage is Stage.REQUEST and http.request is None:
        http.create_empty_request()


async def _discard_rest(connection: BoundedProtocol, stream: Any) -> None:
    """Read the rest of a refused request's body, however large, while it arrives.

    A connection that closes while bytes arrive is reset, and a client that writes its whole body
    first would never read the answer. A client that waits for the end of a closing connection sees
    it at once.
    """
    transport: Any = connection.transport
    if not stream.keep_alive and connection.can_write_now and transport.can_write_eof():
        transport.write_eof()
    stream.request_max_size = math.inf
    with suppress(TimeoutError, BadRequest):
        while stream.request_body:
            async with asyncio.timeout(_SILENCE_SECONDS):
                await stream.read()


def _address_of(transport: Any) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
