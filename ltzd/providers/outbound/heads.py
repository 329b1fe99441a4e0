"""Reads the head of the answer to one HTTP/1.1 request from the bytes of its connection.

httptools parses; this module adds what a client needs: interim answers, and a bound on the head.
"""

from typing import Final

import httptools

from ltzd.providers.outbound.http_client import HttpResponse

_MAX_HEAD_BYTES: Final = 64 * 1024


class HeadReader:
    """The reader of one answer's head; httptools calls the methods `on_…`."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._bytes = 0
        self._has_head = False
        self._is_complete = False
        self._has_more = False
        self._is_kept_open = False
        self._status = 0
        self._headers: dict[str, str] = {}

    @property
    def may_reuse_connection(self) -> bool:
        """Whether the whole answer has come, and the next one belongs to the next request."""
        return self._is_complete and self._is_kept_open and not self._has_more

    def feed(self, data: bytes) -> HttpResponse | None:
        """Return the final answer without its body, once its head has come.

        The headers are spelt in the usual way, whatever the host's. Raises ValueError for an answer
        that is not HTTP.
        """
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise ValueError("the host switches protocols") from error
        except httptools.HttpParserError as error:
            raise ValueError("the answer is not HTTP") from error
        if not self._has_head and self._bytes > _MAX_HEAD_BYTES:
            raise ValueError("the head of the answer is too long")
        return HttpResponse(self._status, self._headers, b"") if self._has_head else None

    def end(self) -> HttpResponse:
        """Raises ConnectionError: the connection has ended within the head."""
        raise ConnectionResetError("the connection ended before the head of the answer did")

    def on_message_begin(self) -> None:
        self._has_more = self._is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_more:
            self._headers[name.decode("latin-1").title()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._has_more:
            return
        self._status = self._parser.get_status_code()
        # 100 Continue and the like come before the answer itself.
        self._has_head = not 100 <= self._status < 200

    def on_message_complete(self) -> None:
        if self._has_more:
            return
        if self._has_head:
            self._is_complete = True
            self._is_kept_open = self._parser.should_keep_alive()
        else:
            self._headers.clear()
