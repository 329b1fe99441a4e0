"""A client's connection with at most one request under way, for the HTTP clients of hot paths.

The reader decides when an answer is complete (`AnswerReader`).
"""

import asyncio
from typing import Generic, Protocol, TypeVar, cast

from ltzd.concurrency.clock import loop_time

_LONG_READ = 64 * 1024
"""Bytes. After more of them other tasks have a turn: uvloop reads up to 8 MiB in one turn, and the
many tiny chunks of an answer take their time."""

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class AnswerReader(Protocol[Answer_co]):
    """Reads the answer to one request; what its methods raise goes to the request's caller."""

    @property
    def may_reuse_connection(self) -> bool:
        """Whether the next answer on the connection belongs to the next request."""

    def feed(self, data: bytes) -> Answer_co | None:
        """Return the answer once it is complete."""

    def end(self) -> Answer_co:
        """Return the answer that ends with its connection.

        Raises ConnectionError if the connection ended within the answer.
        """


class RequestConnection(asyncio.Protocol, Generic[Answer]):
    """The protocol of a connection; `unused_since` is a time of `loop_time`."""

    def __init__(self) -> None:
        self.is_reusable = False
        self.unused_since = 0.0
        self.peer = ""
        """The address of the other end."""
        self._transport: asyncio.Transport | None = None
        self._reader: AnswerReader[Answer] | None = None
        self._answer: asyncio.Future[Answer] | None = None

    async def exchange(self, request: bytes, reader: AnswerReader[Answer]) -> Answer:
        """Raises ConnectionError if the connection ends, and what `reader` raises."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self.is_reusable = False
        self._reader = reader
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        finally:
            self._reader = self._answer = None  # An idle connection keeps no answer.

    def abort(self) -> None:
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transport has the methods of a Transport, but not the type.
        self._transport = cast("asyncio.Transport", transport)
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])

    def data_received(self, data: bytes) -> None:
        if self._reader is None or self._answer is None or self._answer.done():
            self.abort()  # Nothing was asked: these bytes would count as the next request's answer.
            return
        try:
            answer = self._reader.feed(data)
        except Exception as error:  # noqa: BLE001 - the request's caller gets it
            self._answer.set_exception(error)
            return
        if answer is not None:
            self.is_reusable = self._reader.may_reuse_connection
            self.unused_since = loop_time()
            self._answer.set_result(answer)
        elif len(data) > _LONG_READ and self._transport is not None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_again)

    def _read_again(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_reusable = False
        if self._reader is None or self._answer is None or self._answer.done():
            return
        try:
            self._answer.set_result(self._reader.end())
        except Exception as error:  # noqa: BLE001 - as above
            self._answer.set_exception(error)
