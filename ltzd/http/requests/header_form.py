"""Checks the form of a request's header lines, on every surface and the admin port.

Sanic takes a header whose name ends with a space for another header, and leaves control characters
in values. A proxy in front of ltzd may read such a line as Content-Length, as Host, or as two
lines, and then the two disagree where the request ends (RFC 9112 5.1, RFC 9110 5.5). So do a proxy
and ltzd if the proxy knows HTTP/1.0 alone, whose bodies are never chunked (RFC 9112 6.1).
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


def closing_fault(request: Request) -> RequestMalformed | None:
    """Return the fault of the request's headers, and end the connection behind the answer if
    there is one, since bytes of a body may be left in it.

    Must be called before any other refusal: also after another refusal the bytes must not be read.
    """
    if is_stand_in(request):
        return None  # Sanic itself refuses a head that it could not parse
    fault = _fault_of(request)
    if fault is None:
        return None
    stream: Any = request.stream
    stream.keep_alive = False
    return RequestMalformed(fault)


def refuse_bad_headers(request: Request) -> None:
    """Raises RequestMalformed, and ends the connection as `closing_fault` does."""
    fault = closing_fault(request)
    if fault is not None:
        raise fault


def _fault_of(request: Request) -> str | None:
    if not is_well_formed(request.head):
        return "a header's name or value holds a character that is not allowed there"
    if request.version == "1.0" and "transfer-encoding" in request.headers:
        return "HTTP/1.0 has no Transfer-Encoding"
    return None
