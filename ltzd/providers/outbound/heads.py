"""Reads the head of the answer to one HTTP/1.1 request from the bytes of its connection.

httptools parses; this module adds what a client needs: interim answers, and a bound on the head.
"""

from typing import Final

import httptools

_MAX_HEAD_BYTES: Final = 64 * 1024


class HeadReader:
    """httptools calls the methods `on_…`. `status` and `headers` are those of the final answer."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._bytes = 0
        self._has_head = False
        self._is_complete = False
        self._has_more = False
        self._is_kept_open = False
        self.status = 0
        self.headers: list[tuple[str, str]] = []

    @property
    def may_reuse_connection(self) -> bool:
        """Whether the whole answer has come, and the next one belongs to the next request."""
        return self._is_complete and self._is_kept_open and not self._has_more

    def feed(self, data: bytes) -> bool:
        """Returns whether the head has come. Raises ValueError for an answer that is not HTTP."""
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise ValueError("the host switches protocols") from error
        except httptools.HttpParserError as error:
            raise ValueError("the answer is not HTTP") from error
        if not self._has_head and self._bytes > _MAX_HEAD_BYTES:
            raise ValueError("the head of the answer is too long")
        return self._has_head

    def on_message_begin(self) -> None:
        self._has_more = self._is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_more:
            self.headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        if self._has_more:
            return
        self.status = self._parser.get_status_code()
        # 100 Continue and the like come before the answer itself.
        self._has_head = not 100 <= self.status < 200

    def on_message_complete(self) -> None:
        if self._has_more:
            return
        if self._has_head:
            self._is_complete = True
            self._is_kept_open = self._parser.should_keep_alive()
        else:
            self.headers.clear()
