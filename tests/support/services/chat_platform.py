"""The chat platform's guilds and a levelling bot on loopback, as their documents describe them."""

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from ltzd.providers.chat import ChatPolicy
from tests.support.services.web_servers import served_at

GUILD, OTHER_GUILD = "197038439483310086", "197038439483310090"
ROLE, OTHER_ROLE = "197038439483310087", "197038439483310088"
ADA, BEN = "800000000000000001", "800000000000000002"
TOKEN = "bot.token.of-ours"

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answering(status: int, body: object = None, **headers: str) -> Behaviour:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


def limited(seconds: float, *, everywhere: bool = False) -> Behaviour:
    body = {"message": "You are being rate limited.", "retry_after": seconds, "global": everywhere}
    return answering(429, body)


@dataclass
class ChatServer:
    """The guilds that our bot is in, their members' roles and levels.

    `requests` lists each request's kind, guild and user. Behaviours in `next`, then the one in
    `always`, replace a guild's true answers.
    """

    base: str = ""
    guilds: set[str] = field(default_factory=lambda: {GUILD, OTHER_GUILD})
    roles: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    levels: dict[tuple[str, str], object] = field(default_factory=dict)
    next: dict[str, deque[Behaviour]] = field(default_factory=lambda: defaultdict(deque))
    always: dict[str, Behaviour] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def policy(self, **changed: Any) -> ChatPolicy:
        settings: dict[str, Any] = {
            "base_url": f"{self.base}/api/v10",
            "token": TOKEN,
            "levels_url": f"{self.base}/levels/{{guild_id}}/{{user_id}}",
        }
        return ChatPolicy(**(settings | changed))

    async def member(self, request: web.Request) -> web.StreamResponse:
        guild, user = request.match_info["guild"], request.match_info["user"]
        behaviour = self._behaviour("role", guild, user, request)
        if behaviour is not None:
            return await behaviour(request)
        if request.headers.get("Authorization") != f"Bot {TOKEN}":
            return web.json_response({"message": "401: Unauthorized", "code": 0}, status=401)
        if guild not in self.guilds:
            return web.json_response({"message": "Unknown Guild", "code": 10004}, status=404)
        roles = self.roles.get((guild, user))
        if roles is None:
            return web.json_response({"message": "Unknown Member", "code": 10007}, status=404)
        return web.json_response({"user": {"id": user}, "nick": None, "roles": roles})

    async def level(self, request: web.Request) -> web.StreamResponse:
        guild, user = request.match_info["guild"], request.match_info["user"]
        behaviour = self._behaviour("level", guild, user, request)
        if behaviour is not None:
            return await behaviour(request)
        if (guild, user) not in self.levels:
            return web.json_response({"error": "not found"}, status=404)
        return web.json_response({"level": self.levels[guild, user]})

    def _behaviour(
        self, kind: str, guild: str, user: str, request: web.Request
    ) -> Behaviour | None:
        self.requests.append((kind, guild, user))
        self.headers.append(dict(request.headers))
        behaviours = self.next[guild]
        return behaviours.popleft() if behaviours else self.always.get(guild)


@asynccontextmanager
async def a_chat_server() -> AsyncIterator[ChatServer]:
    server = ChatServer()
    application = web.Application()
    application.router.add_get("/api/v10/guilds/{guild}/members/{user}", server.member)
    application.router.add_get("/levels/{guild}/{user}", server.level)
    async with served_at(application) as server.base:
        yield server
