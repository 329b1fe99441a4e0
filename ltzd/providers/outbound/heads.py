"""Reads the head of the answer to one HTTP/1.1 request from the bytes of its connection.

httptools parses; this module adds what a client needs: interim answers, and a bound on the head.
"""

from typing import Final

import httptools

from ltzd.providers.outbound.http_client import HttpResponse

_MAX_HEAD_BYTES: Final = 64 * 1024


class HeadReader:
    """The reader of one answer's head.

    The parser refers to its `_Message`, which refers to the parser only while that parses: a cycle
    that stayed would keep both until the next collection of garbage.
    """

    def __init__(self) -> None:
        self._message = _Message()
        self._parser = httptools.HttpResponseParser(self._message)
        self._bytes = 0

    @property
    def may_reuse_connection(self) -> bool:
        """Whether the whole answer has come, and the next one belongs to the next request."""
        message = self._message
        return message.is_complete and message.is_kept_open and not message.has_more

    def feed(self, data: bytes) -> HttpResponse | None:
        """Return the final answer without its body, once its head has come.

        The headers are spelt in the usual way, whatever the host's. Raises ValueError for an answer
        that is not HTTP.
        """
        message = self._message
        self._bytes += len(data)
        message.parser = self._parser
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise ValueError("the host switches protocols") from error
        except httptools.HttpParserError as error:
            raise ValueError("the answer is not HTTP") from error
        finally:
            del message.parser
        if not message.has_head and self._bytes > _MAX_HEAD_BYTES:
            raise ValueError("the head of the answer is too long")
        return HttpResponse(message.status, message.headers, b"") if message.has_head else None

    def end(self) -> HttpResponse:
        """Raises ConnectionError: the connection has ended within the head."""
        raise ConnectionResetError("the connection ended before the head of the answer did")


class _Message:
    """An answer as httptools tells of it, which calls the methods `on_…`."""

    parser: httptools.HttpResponseParser
    """Is there while the parser parses."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = False
        self.is_complete = False
        self.has_more = False
        """Whether bytes follow the answer that belong to another one."""
        self.is_kept_open = False

    def on_message_begin(self) -> None:
        self.has_more = self.is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_more:
            self.headers[name.decode("latin-1").title()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.has_more:
            return
        self.status = self.parser.get_status_code()
        # 100 Continue and the like come before the answer itself.
        self.has_head = not 100 <= self.status < 200

    def on_message_complete(self) -> None:
        if self.has_more:
            return
        if self.has_head:
            self.is_complete = True
            self.is_kept_open = self.parser.should_keep_alive()
        else:
            self.headers.clear()
