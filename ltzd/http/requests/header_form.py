"""Checks the form of a request's header lines, on every surface and the admin port.

Sanic takes a header whose name ends with a space for another header, and leaves control characters
in values. A proxy in front of ltzd may read such a line as Content-Length, as Host, or as two
lines, and then the two disagree where the request ends (RFC 9112 5.1, RFC 9110 5.5).
"""

import re
from typing import Any

from sanic.request import Request

from ltzd.http.errors import RequestMalformed, is_stand_in

_LINES = re.compile(
    rb"[^\r\n\0]++(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]++:[^\x00-\x08\x0a-\x1f\x7f]*+)*+"
)
_STRANGE_FRAMING = re.compile(
    rb"\r\n(?i:content-length|transfer-encoding):(?![ \t]*+[0-9A-Za-z]++[ \t]*+(?:\r\n|\Z))"
)
"""Sanic drops spaces of all scripts before these values, and reads the digits of all scripts."""


def is_well_formed(head: bytes) -> bool:
    """Whether each line after the first is a header. `head` ends before the empty line."""
    return _LINES.fullmatch(head) is not None and _STRANGE_FRAMING.search(head) is None


def closes_for_bad_headers(request: Request) -> bool:
    """Returns whether a header is malformed, and ends the connection behind the answer if so, since
    bytes of a body may be left in it.

    Must be called before any other refusal: after that one, too, the bytes must not be read.
    """
    if is_stand_in(request) or is_well_formed(request.head):
        return False  # Sanic itself refuses a head that it could not parse
    stream: Any = request.stream
    stream.keep_alive = False
    return True


def refuse_bad_headers(request: Request) -> None:
    """Raises RequestMalformed, and ends the connection as `closes_for_bad_headers` does."""
    if closes_for_bad_headers(request):
        raise bad_headers()


def bad_headers() -> RequestMalformed:
    return RequestMalformed("a header's name or value holds a character that is not allowed there")
