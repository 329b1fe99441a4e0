"""Sanic's HTTP/1.1 stream, which writes an ordinary reply in one step."""

from time import monotonic
from typing import Any

from sanic.http import Http
from sanic.http.constants import Stage

from ltzd.http.responses import Reply

_WITHOUT_BODY = frozenset((204, 304))


class ReplyStream(Http):
    """The stream of one connection."""

    __slots__ = ()

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
