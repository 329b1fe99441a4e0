"""Reads the bearer token of a request."""

import re

from sanic.request import Request

from ltzd.errors import Unauthorized

_BEARER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/-]+=*) *")


def bearer_token(request: Request) -> str:
    """The token, checked for its form only. Raises Unauthorized."""
    lines = request.headers.getall("authorization", ())
    match = _BEARER.fullmatch(lines[0]) if len(lines) == 1 else None
    if match is None:
        raise Unauthorized("Authorization must be given once, as Bearer and a token")
    return match[1]
