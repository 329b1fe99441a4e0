"""Checks the form of the Host header, on every surface and the admin port (RFC 9112 3.2).

With two Host headers, or a malformed one, ltzd and a proxy in front of it could read different
hosts.
"""

import re
from functools import lru_cache
from ipaddress import IPv6Address

from sanic.request import Request

from ltzd.http.errors import RequestMalformed, is_stand_in

_AUTHORITY = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)"
    r"(?::(?P<port>[0-9]{0,5}))?"
)
_MAX_PORT = 65_535
_MAX_LENGTH = 1_024
"""The longest Host header: four times the longest name. Longer ones would fill a cache."""


def refuse_bad_host(request: Request) -> None:
    """Raises RequestMalformed for a repeated or malformed Host, and over HTTP/1.1 without Host."""
    if is_stand_in(request):
        return
    hosts = request.headers.getall("host", ())
    if len(hosts) == 1:
        if len(hosts[0]) > _MAX_LENGTH or not is_authority(hosts[0]):
            raise RequestMalformed("Host must be a name or an address, with or without a port")
    elif hosts or request.version == "1.1":
        raise RequestMalformed("the Host header must be given once")


@lru_cache(maxsize=4096)
def is_authority(text: str) -> bool:
    """True for a name or an address, with or without a port."""
    match = _AUTHORITY.fullmatch(text.strip(" \t"))
    if match is None or int(match["port"] or 0) > _MAX_PORT:
        return False
    return match["v6"] is None or _is_ipv6(match["v6"])


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
