"""A host site whose members a test sets, and the policy and log-ins to request it with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from aiohttp import web

from ltzd.providers.host_sites import HostCredentials
from ltzd.providers.outbound.guarded_http import GuardPolicy
from tests.support.services.web_servers import served_at

SHORT = GuardPolicy(allow_loopback=True, timeout_seconds=3.0)
"""For a host site on loopback, which a test may suspend."""


class FakeSite:
    """Answers every log-in with `user`."""

    def __init__(self) -> None:
        self.base = ""
        self.requests: list[str] = []
        self.user: dict[str, Any] = {"id": 42, "username": "ann", "email": "Ann@site.example"}

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(str(request.rel_url))
        return web.json_response(self.user | {"roles": ["subscriber"]})


@asynccontextmanager
async def a_fake_site() -> AsyncIterator[FakeSite]:
    site = FakeSite()
    application = web.Application()
    application.router.add_get("/{path:.*}", site.answer)
    async with served_at(application) as site.base:
        yield site


def a_log_in() -> HostCredentials:
    """Returns a log-in that no test has used yet."""
    return HostCredentials(cookie=f"wordpress_logged_in_a=ann%7C{uuid4().hex}", nonce="a1b2c3d4e5")
