"""Reads the answer to one HTTP/1.1 request from the bytes of its connection (RFC 9112).

httptools parses; this module adds what a client needs: interim answers, compression, a bound on the
body, and the answer that ends with its connection.
"""

import zlib
from dataclasses import dataclass
from typing import Final, Protocol

import httptools

_MAX_HEAD_BYTES: Final = 64 * 1024
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS
"""zlib recognises the headers of gzip and of deflate."""


class AnswerTooLong(Exception):
    """The answer's decompressed body is longer than its caller allows."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """`body` is decompressed."""

    status: int
    retry_after: str | None
    body: bytes


class AnswerReader:
    """The reader of one answer; httptools calls the methods `on_…`."""

    def __init__(self, most: int) -> None:
        """`most` bounds the bytes of the decompressed body."""
        self._most = most
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._head_bytes = 0
        self._has_head = False
        self._is_interim = False
        self._has_length = False
        self._is_complete = False
        self._has_more = False
        self._is_kept_open = False
        self._encoding = b""
        self._retry_after: str | None = None
        self._received: list[bytes] = []
        self._decompressor: _Decompressor | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0

    @property
    def may_reuse_connection(self) -> bool:
        """Whether the next answer on the connection belongs to the next request."""
        return self._is_complete and self._is_kept_open and not self._has_more

    def feed(self, data: bytes) -> HttpAnswer | None:
        """Return the answer once it is complete.

        Raises AnswerTooLong, and ValueError for an answer that is not HTTP.
        """
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise ValueError("the node switches protocols") from error
        except httptools.HttpParserError as error:
            raise ValueError(f"the node's answer is not HTTP: {error}") from error
        if not self._has_head and self._head_bytes > _MAX_HEAD_BYTES:
            raise ValueError("the head of the node's answer is too long")
        for part in self._received:
            self._add(part)
        self._received.clear()
        return self._answer() if self._is_complete else None

    def end(self) -> HttpAnswer:
        """Return the answer that ends with its connection, whose end the caller has seen.

        Raises ConnectionError if the connection ended within the answer, and ValueError.
        """
        if self._is_complete or not self._has_head or self._has_length:
            raise ConnectionResetError("the connection ended before the end of the answer")
        return self._answer()

    def on_message_begin(self) -> None:
        self._has_more = self._is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_more:
            return
        name = name.lower()
        if name == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif name == b"content-encoding":
            self._encoding = value.strip().lower()
        elif name in {b"content-length", b"transfer-encoding"}:
            self._has_length = True

    def on_headers_complete(self) -> None:
        if self._has_more:
            return
        self._status = self._parser.get_status_code()
        # 100 Continue and the like come before the answer itself.
        self._is_interim = 100 <= self._status < 200
        self._has_head = not self._is_interim

    def on_body(self, part: bytes) -> None:
        if not self._has_more:
            self._received.append(part)

    def on_message_complete(self) -> None:
        if self._has_more:
            return
        if self._is_interim:
            self._retry_after, self._encoding, self._has_length = None, b"", False
        else:
            self._is_complete = True
            self._is_kept_open = self._parser.should_keep_alive()

    def _add(self, part: bytes) -> None:
        if self._encoding not in {b"", b"identity"}:
            self._decompressor = self._decompressor or _decompressor_of(self._encoding, part)
            try:
                part = self._decompressor.decompress(part, self._most - self._body_bytes + 1)
            except zlib.error as error:
                raise ValueError("the node's answer is not compressed as it says") from error
        self._body_bytes += len(part)
        if self._body_bytes > self._most:
            raise AnswerTooLong(f"The node's answer is longer than {self._most} bytes")
        self._body.append(part)

    def _answer(self) -> HttpAnswer:
        if self._decompressor is not None and not self._decompressor.eof:
            raise ValueError("the node's answer ends within its compressed body")
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        return HttpAnswer(self._status, self._retry_after, body)


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _decompressor_of(encoding: bytes, first: bytes) -> _Decompressor:
    """Return the decompressor of a body that begins with `first`. Raises ValueError."""
    if encoding not in {b"gzip", b"x-gzip", b"deflate"}:
        raise ValueError("the node's answer has an encoding that the request does not allow")
    is_bare = encoding == b"deflate" and first[0] & 0x0F != zlib.DEFLATED
    return zlib.decompressobj(-zlib.MAX_WBITS if is_bare else _ANY_HEADER)
