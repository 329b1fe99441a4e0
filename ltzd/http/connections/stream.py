"""Sanic's HTTP/1.1 stream, which writes an ordinary reply in one step."""

import asyncio
import re
from time import monotonic
from typing import Any

from sanic.exceptions import BadRequest
from sanic.http import Http
from sanic.http.constants import Stage
from sanic.http.http1 import HTTP_CONTINUE

from ltzd.http.responses import Reply

_WITHOUT_BODY = frozenset((204, 304))
_NUMBER = re.compile(r"[0-9A-Fa-f]+[ \t]*")
_LONGEST_CHUNK_LINE = 64
"""Bytes of a chunk's size and extensions."""
_CHUNKS_A_TURN = 16
"""Chunks that are read between two turns of the event loop: a quarter of a megabyte of one-byte
chunks takes half a second."""
_MOST_CHUNKS = 16_384
_CHUNK_BYTES = 256
"""A body may have one more chunk for each of these bytes."""
_CHUNK_START = re.compile(rb"\r\n[^\x00-\x08\x0a-\x1f\x7f]{1,%d}\r\n" % _LONGEST_CHUNK_LINE)
"""The end of the head or of the last chunk's data, and the line of a chunk's size."""


class ReplyStream(Http):
    """The stream of one connection."""

    __slots__ = ("_chunks",)
    _chunks: int
    """Of the present request's body."""

    @staticmethod
    def _safe_int(value: str, base: int = 10) -> int:
        """The length of a body or of a chunk. Raises ValueError.

        Python reads 0x, leading spaces and the digits of all scripts, too, which a proxy may take
        for another length.
        """
        if _NUMBER.fullmatch(value) is None:
            raise ValueError("not a number of RFC 9112")
        return int(value, base)

    async def read(self) -> bytes | None:
        """Sanic's own takes any two bytes for the end of a chunk's data, and leaves line feeds in
        the line of a chunk's size. A proxy may read a line's end there, and other chunks.
        """
        if self.expecting_continue:
            self.expecting_continue = False
            await self._send(HTTP_CONTINUE)
        body: Any = self.request_body  # Sanic's type lacks its values
        if body == "chunked" and not self.request_bytes_left:
            await self._check_chunk_start()
        return await super().read()

    async def _check_chunk_start(self) -> None:
        """Raises BadRequest, and ends the connection."""
        read_before = self.request_bytes or 0
        self._chunks = self._chunks + 1 if read_before else 1
        if self._chunks % _CHUNKS_A_TURN == 0:
            await asyncio.sleep(0)
        buffer = self.recv_buffer
        while (end := buffer.find(b"\r\n", 3)) < 0 and len(buffer) <= 3 + _LONGEST_CHUNK_LINE:
            await self._receive_more()
        has_too_many = self._chunks > _MOST_CHUNKS + read_before // _CHUNK_BYTES
        if has_too_many or _CHUNK_START.fullmatch(buffer[: end + 2]) is None:
            self.keep_alive = False
            raise BadRequest("Bad chunked encoding")

    def create_empty_request(self) -> None:
        """Sanic's stand-in for a request whose head it did not parse, which here knows its
        connection."""
        super().create_empty_request()
        self.request.conn_info = self.protocol.conn_info

    async def head_response_ignored(  # type: ignore[override] # Sanic itself awaits it
        self, data: bytes, end_stream: bool
    ) -> None:
        super().head_response_ignored(data, end_stream)

    def send_at_once(self, reply: Reply) -> bool:
        """Write the whole reply, without waiting.

        Returns False if the reply has no body, or must wait for the client to read: `Reply.send`
        does then what is to be done. Both write the same bytes.
        """
        protocol: Any = self.protocol
        body = reply.body
        if not body or self.head_only or reply.status in _WITHOUT_BODY or self.expecting_continue:
            return False
        if not protocol.can_write_now:
            return False
        protocol.transport.write(reply.head(keeps_alive=self.keep_alive) + body)
        protocol._time = monotonic()  # noqa: SLF001 - the last activity, for Sanic's timeouts
        self.response_func = None  # type: ignore[assignment] # Sanic itself sets None
        self.stage = Stage.IDLE
        return True
