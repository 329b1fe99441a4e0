"""Decides which web pages may read responses: pages of the brands' domains and ltzd's own.

Sanic's extension supports only a fixed list of origins; here the list changes with the brands.
"""

import re
from collections.abc import Callable, Mapping

from sanic.compat import Header
from sanic.request import Request

from ltzd.errors import ValidationFailed
from ltzd.http.loopback import is_loopback
from ltzd.http.services import HttpPolicy

_ORIGIN = re.compile(r"(https?)://([A-Za-z0-9.-]{1,253}|\[::1\])(?::([0-9]{1,5}))?")

CORS_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
    "Access-Control-Allow-Headers": "Content-Type, Authorization",
    "Access-Control-Allow-Credentials": "true",
    "Access-Control-Expose-Headers": (
        "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After"
    ),
    "Access-Control-Max-Age": "600",
}


class Cors:
    """`methods_below` has the allowed methods of paths that differ from spec 5, by path."""

    def __init__(
        self,
        policy: HttpPolicy,
        is_known_domain: Callable[[str], bool],
        methods_below: Mapping[str, str] | None = None,
    ) -> None:
        self._policy = policy
        self._is_known_domain = is_known_domain
        self._methods = [(path + "/", methods) for path, methods in (methods_below or {}).items()]

    def allows(self, origin: str) -> bool:
        """True for brands' domains over https, ltzd's own pages, and in dev for loopback pages."""
        match = _ORIGIN.fullmatch(origin)
        if match is None:
            return False
        scheme, host = match[1], match[2].lower().removesuffix(".")
        if origin in self._policy.own_origins:
            return True
        if self._policy.allow_loopback_origins and is_loopback(host):
            return True
        return scheme == "https" and self._is_known_domain(host)

    def refuse_foreign_origin(self, request: Request) -> None:
        """Spec 5. A request without Origin is allowed: browsers always send it.

        Raises ValidationFailed.
        """
        if not all(self.allows(origin) for origin in request.headers.getall("origin", ())):
            raise ValidationFailed("Origin not allowed")

    def apply(
        self, origin: str | None, headers: Header, path: str = "/", *, is_preflight: bool = False
    ) -> None:
        """Set the CORS headers. `Vary` is always set, since caches must tell origins apart."""
        headers["Vary"] = "Origin"
        if origin is None and not is_preflight:
            return
        for name, value in CORS_HEADERS.items():
            headers[name] = value
        for prefix, methods in self._methods:
            if path.startswith(prefix):
                headers["Access-Control-Allow-Methods"] = methods
        if origin is not None and self.allows(origin):
            headers["Access-Control-Allow-Origin"] = origin
