"""Which web pages may read our answers: the brands' own, ours, and nobody else's.

Sanic's extension knows only a fixed list of origins; ours change with the brands.
"""

import re
from collections.abc import Callable

from sanic.compat import Header

from ltzd.http.loopback import is_loopback
from ltzd.http.services import HttpPolicy

LINKS_PATH = "/site-links"
"""Where owners make links with brands' sites, and end them."""

_ORIGIN = re.compile(r"(https?)://([A-Za-z0-9.-]{1,253}|\[::1\])(?::([0-9]{1,5}))?")

FOR_BROWSERS = {
    "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
    "Access-Control-Allow-Headers": "Content-Type, Authorization",
    "Access-Control-Allow-Credentials": "true",
    "Access-Control-Expose-Headers": (
        "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After"
    ),
    "Access-Control-Max-Age": "600",
}

METHODS_OF_LINKS = "GET, POST, DELETE, OPTIONS"
"""Spec 5 names three methods for every path; below /site-links, which it does not know, an owner's
page also ends a link."""


class Cors:
    def __init__(self, policy: HttpPolicy, is_known_domain: Callable[[str], bool]) -> None:
        self._policy = policy
        self._is_known_domain = is_known_domain

    def grants(self, origin: str) -> bool:
        """Brands' domains over https on any port; loopback pages in dev; our own pages."""
        match = _ORIGIN.fullmatch(origin)
        if match is None:
            return False
        scheme, host = match[1], match[2].lower().removesuffix(".")
        if origin in self._policy.own_origins:
            return True
        if self._policy.allow_loopback_origins and is_loopback(host):
            return True
        return scheme == "https" and self._is_known_domain(host)

    def apply(
        self, origin: str | None, headers: Header, path: str = "/", *, is_preflight: bool = False
    ) -> None:
        """Answers differ by Origin, so caches are told even where there is none."""
        headers["Vary"] = "Origin"
        if origin is None and not is_preflight:
            return
        for name, value in FOR_BROWSERS.items():
            headers[name] = value
        if path.startswith(LINKS_PATH + "/"):
            headers["Access-Control-Allow-Methods"] = METHODS_OF_LINKS
        if origin is not None and self.grants(origin):
            headers["Access-Control-Allow-Origin"] = origin
