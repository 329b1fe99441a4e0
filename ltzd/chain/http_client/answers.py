"""Reads the answer to one HTTP/1.1 request from the bytes of its connection (RFC 9112).

httptools parses; this module adds what a client needs: interim answers, compression, a bound on the
body, and the answer that ends with its connection.
"""

import zlib
from typing import Final, Protocol

import httptools
import msgspec

_MAX_HEAD_BYTES: Final = 64 * 1024
_MOST_TRAILERS: Final = 100
_FRAMING: Final = 2
"""The bytes of an answer for each byte of its body, at most: chunks have sizes and extensions."""
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS
"""zlib recognises the headers of gzip and of deflate."""


class AnswerTooLong(Exception):
    """The answer's decompressed body is longer than its caller allows."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """`body` is decompressed."""

    status: int
    retry_after: str | None
    body: bytes


class HttpAnswerReader:
    """The reader of one answer.

    The parser refers to its `_Message`, which refers to the parser only while that parses: a cycle
    that stayed would keep the whole answer until the next collection of garbage.
    """

    def __init__(self, most: int) -> None:
        """`most` bounds the bytes of the decompressed body."""
        self._most = most
        self._message = _Message()
        self._parser = httptools.HttpResponseParser(self._message)
        self._bytes = 0
        self._decompressor: _Decompressor | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0

    @property
    def may_reuse_connection(self) -> bool:
        """Whether the next answer on the connection belongs to the next request."""
        message = self._message
        return message.is_complete and message.is_kept_open and not message.has_more

    def feed(self, data: bytes) -> HttpAnswer | None:
        """Return the answer once it is complete.

        Raises AnswerTooLong, and ValueError for an answer that is not HTTP.
        """
        message = self._message
        self._bytes += len(data)
        message.parser = self._parser
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise ValueError("the node switches protocols") from error
        except httptools.HttpParserError as error:
            raise ValueError(f"the node's answer is not HTTP: {error}") from error
        finally:
            del message.parser
        if not message.has_head and self._bytes > _MAX_HEAD_BYTES:
            raise ValueError("the head of the node's answer is too long")
        if not message.is_complete and self._bytes > _FRAMING * (_MAX_HEAD_BYTES + self._most):
            raise self._too_long()
        for part in message.received:
            self._add(part)
        message.received.clear()
        return self._answer() if message.is_complete else None

    def end(self) -> HttpAnswer:
        """Return the answer that ends with its connection, whose end the caller has seen.

        Raises ConnectionError if the connection ended within the answer, and ValueError.
        """
        message = self._message
        if message.is_complete or not message.has_head or message.has_length:
            raise ConnectionResetError("the connection ended before the end of the answer")
        return self._answer()

    def _add(self, part: bytes) -> None:
        encoding = self._message.encoding
        if encoding not in {b"", b"identity"}:
            self._decompressor = self._decompressor or _decompressor_of(encoding, part)
            try:
                part = self._decompressor.decompress(part, self._most - self._body_bytes + 1)
            except zlib.error as error:
                raise ValueError("the node's answer is not compressed as it says") from error
        self._body_bytes += len(part)
        if self._body_bytes > self._most:
            raise self._too_long()
        self._body.append(part)

    def _too_long(self) -> AnswerTooLong:
        return AnswerTooLong(f"The node's answer is longer than {self._most} bytes")

    def _answer(self) -> HttpAnswer:
        if self._decompressor is not None and not self._decompressor.eof:
            raise ValueError("the node's answer ends within its compressed body")
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        return HttpAnswer(self._message.status, self._message.retry_after, body)


class _Message:
    """An answer as httptools tells of it, which calls the methods `on_…`."""

    parser: httptools.HttpResponseParser
    """Set only while the parser parses (see `HttpAnswerReader`)."""

    def __init__(self) -> None:
        self.status = 0
        self.has_head = False
        self.has_length = False
        self.is_complete = False
        self.has_more = False
        """Whether bytes follow the answer that belong to another one."""
        self.is_kept_open = False
        self.encoding = b""
        self.retry_after: str | None = None
        self.received: list[bytes] = []
        """The parts of the body that the reader has not taken yet."""
        self._is_interim = False
        self._trailers = 0

    def on_message_begin(self) -> None:
        self.has_more = self.is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.has_more:
            return
        if self.has_head:
            self._trailers += 1
            if self._trailers > _MOST_TRAILERS:
                raise ValueError("too many trailers")
            return
        name = name.lower()
        if name == b"retry-after":
            self.retry_after = value.decode("latin-1")
        elif name == b"content-encoding":
            self.encoding = value.strip().lower()
        elif name in {b"content-length", b"transfer-encoding"}:
            self.has_length = True

    def on_headers_complete(self) -> None:
        if self.has_more:
            return
        self.status = self.parser.get_status_code()
        # 100 Continue and the like come before the answer itself.
        self._is_interim = 100 <= self.status < 200
        self.has_head = not self._is_interim

    def on_body(self, part: bytes) -> None:
        if not self.has_more:
            self.received.append(part)

    def on_message_complete(self) -> None:
        if self.has_more:
            return
        if self._is_interim:
            self.retry_after, self.encoding, self.has_length = None, b"", False
        else:
            self.is_complete = True
            self.is_kept_open = self.parser.should_keep_alive()


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
