"""Checks the form of a request's header lines, on every surface and the admin port.

Sanic takes a header whose name ends with a space for another header, and leaves CR, LF and NUL in
values. A proxy in front of ltzd may read such a line as Content-Length, as Host, or as two lines,
and then the two disagree where the request ends (RFC 9112 5.1, RFC 9110 5.5).
"""

import re
from typing import Any

from sanic.request import Request

from ltzd.http.errors import RequestMalformed

_LINES = re.compile(rb"[^\r\n\0]++(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]++:[^\r\n\0]*+)*+")


def is_well_formed(head: bytes) -> bool:
    """Whether each line after the first is a header. `head` ends before the empty line."""
    return _LINES.fullmatch(head) is not None


def refuse_bad_headers(request: Request) -> None:
    """Raises RequestMalformed, and ends the connection, since bytes of a body may be left in it."""
    if request.method == "NONE" or is_well_formed(request.head):
        return  # NONE: Sanic's stand-in for a head that it could not parse, and refuses itself
    stream: Any = request.stream
    stream.keep_alive = False
    raise RequestMalformed("a header's name or value holds a character that is not allowed there")
