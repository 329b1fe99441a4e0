"""Host sites: one that says what a test has it say, and how any of them is asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from aiohttp import web

from ltzd.providers.host_sites import HostCredentials
from ltzd.providers.outbound.guarded_http import GuardPolicy

SHORT = GuardPolicy(allow_loopback=True, timeout_seconds=1.0)
"""For asking a host site of this machine, which a test may have hang."""


class FakeSite:
    """Tells everybody who brings a log-in that he is `user`."""

    def __init__(self) -> None:
        self.base = ""
        self.asked: list[str] = []
        self.user: dict[str, Any] = {"id": 42, "username": "ann", "email": "Ann@site.example"}

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(str(request.rel_url))
        return web.json_response(self.user | {"roles": ["subscriber"]})


@asynccontextmanager
async def a_fake_site() -> AsyncIterator[FakeSite]:
    site = FakeSite()
    application = web.Application()
    application.router.add_get("/{path:.*}", site.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield site
    finally:
        await runner.cleanup()


def a_log_in() -> HostCredentials:
    """One that nobody has asked about yet."""
    return HostCredentials(cookie=f"wordpress_logged_in_a=ann%7C{uuid4().hex}", nonce="a1b2c3d4e5")
