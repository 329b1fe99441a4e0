"""A brand's own API on loopback, which purchase constraints ask about users."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.services.web_servers import served_at

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]
BIG = 10 * 2**20


@dataclass
class BrandApi:
    """Answers `{"allowed": …}` for a user, or behaves as a test has set for that user."""

    allowed: set[str] = field(default_factory=set)
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    """Request counts, by the user's address in lower case."""
    followed_redirects: int = 0
    """Requests for the target of `redirect`."""
    base: str = ""

    @property
    def url(self) -> str:
        return f"{self.base}/check/{{collection_id}}?user={{user_address}}"

    def allow(self, wallet: str) -> None:
        self.allowed.add(wallet.lower())

    def forbid(self, wallet: str) -> None:
        self.allowed.discard(wallet.lower())

    def behave(self, wallet: str, behaviour: Behaviour) -> None:
        self.behaviours[wallet.lower()] = behaviour

    def recover(self) -> None:
        self.behaviours.clear()

    def count(self, wallet: str) -> int:
        return self.requests[wallet.lower()]

    async def check(self, request: web.Request) -> web.StreamResponse:
        user = request.query["user"].lower()
        self.requests[user] += 1
        behaviour = self.behaviours.get(user)
        return self.answer(user) if behaviour is None else await behaviour(request)

    def answer(self, wallet: str) -> web.Response:
        return web.json_response({"allowed": wallet.lower() in self.allowed})

    async def follow_redirect(self, _request: web.Request) -> web.Response:
        self.followed_redirects += 1
        return web.json_response({"allowed": True})


# Failures of an API. Each of them says somewhere that the user is allowed.


async def never_answer(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def fail(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"allowed": True}, status=500)


async def redirect(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"allowed": True}, status=302, headers={"Location": "/elsewhere"})


async def answer_too_much(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"allowed": True, "padding": "x" * BIG})


async def answer_html(_request: web.Request) -> web.StreamResponse:
    return web.Response(text='<p>{"allowed": true}</p>', content_type="text/html")


@asynccontextmanager
async def a_brand_api() -> AsyncIterator[BrandApi]:
    api = BrandApi()
    application = web.Application()
    application.router.add_get("/check/{collection}", api.check)
    application.router.add_get("/elsewhere", api.follow_redirect)
    async with served_at(application) as api.base:
        yield api
