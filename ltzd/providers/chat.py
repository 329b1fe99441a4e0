"""The one client of the chat platform's guilds: which roles a member has, and which level.

Speaks Discord's API for roles; levels come from a URL that the levelling bot answers. An unclear
answer of either raises ChatUnavailable and never means "no member". After a 429 no request is sent
until the named time: to the guild that it names, or to the whole service.
"""

import asyncio
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import aiohttp

from ltzd import __version__, telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.errors import Unavailable
from ltzd.providers.outbound.bounded_json import InvalidJsonError, decode_json
from ltzd.rules.constraints.constraints import ChatConstraint, ChatLevel, ChatRole, is_snowflake
from ltzd.rules.constraints.json_paths import Json

_ABSENT: Final = frozenset({10007, 10013})
"""The platform's codes for an unknown member and an unknown user; an unknown guild has another."""
_LARGEST_BODY_BYTES: Final = 64 * 1024
_LEAST_WAIT_SECONDS: Final = 0.25
_USUAL_WAIT_SECONDS: Final = 1.0
_LONGEST_WAIT_SECONDS: Final = 3600.0
_MOST_ROLES: Final = 1_000
_PLACEHOLDERS: Final = ("{guild_id}", "{user_id}")
_ALL_GUILDS: Final = ""


@dataclass(frozen=True, slots=True)
class ChatPolicy:
    """`base_url` is the platform's API with its version, `token` our bot's, which must be in the
    guilds. `levels_url` holds {guild_id} and {user_id}. `timeout_seconds` bounds a question, with
    its waiting for a place and for the end of a 429."""

    base_url: str = "https://discord.com/api/v10"
    token: str | None = field(default=None, repr=False)
    levels_url: str | None = field(default=None, repr=False)
    timeout_seconds: float = 5.0
    max_concurrent: int = 16
    max_waiting: int = 1_000


class ChatUnavailable(Unavailable):
    """`reason` is fit for a log; after `wait_seconds` the same question is allowed again."""

    def __init__(self, reason: str, wait_seconds: float = 0.0) -> None:
        super().__init__("The chat platform gave no usable answer", reason=reason)
        self.reason = reason
        self.wait_seconds = wait_seconds


def validate_levels_url(text: str) -> str:
    """Raises ValueError for a template that cannot be asked about a guild's user."""
    if any(text.count(placeholder) != 1 for placeholder in _PLACEHOLDERS):
        raise ValueError("must hold {guild_id} and {user_id}, each once")
    if re.search(r"[{}]", _filled(text, "", "")):
        raise ValueError("may hold no other braces")
    return text


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    headers: Mapping[str, str]
    body: object
    """None for what is not JSON."""

    def field(self, name: str) -> object:
        return self.body.get(name) if isinstance(self.body, dict) else None


@dataclass(frozen=True, slots=True)
class _Call:
    service: str
    guild: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class ChatPlatform:
    def __init__(self, policy: ChatPolicy) -> None:
        self._policy = policy
        self._places = asyncio.Semaphore(policy.max_concurrent)
        self._under_way = 0
        self._still_until: dict[tuple[str, str], float] = {}
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def observe(self, constraint: ChatConstraint, account: str) -> Json:
        """What `constraints.is_satisfied` judges: the account's roles or level in the guild."""
        if not is_snowflake(account):
            return None  # nobody there is called so
        match constraint:
            case ChatRole():
                return await self._roles(constraint.guild_id, account)
            case ChatLevel():
                return await self._level(constraint.guild_id, account)

    async def _roles(self, guild: str, account: str) -> Json:
        policy = self._policy
        if policy.token is None:
            raise ChatUnavailable("no bot token is configured")
        url = f"{policy.base_url.rstrip('/')}/guilds/{guild}/members/{account}"
        headers = {"Authorization": f"Bot {policy.token}"}
        reply = await self._asked(_Call("chat_roles", guild, url, headers))
        if reply.status == 404 and reply.field("code") in _ABSENT:
            return None
        roles = _plain(reply).field("roles")
        if not isinstance(roles, list) or len(roles) > _MOST_ROLES:
            raise ChatUnavailable("the answer lists no roles")
        return [role for role in roles if isinstance(role, str)]

    async def _level(self, guild: str, account: str) -> Json:
        template = self._policy.levels_url
        if template is None:
            raise ChatUnavailable("no URL of levels is configured")
        reply = await self._asked(_Call("chat_levels", guild, _filled(template, guild, account)))
        if reply.status == 404:
            return None  # whom the bot has never met has no level
        level = _plain(reply).field("level")
        if not isinstance(level, int) or isinstance(level, bool):
            raise ChatUnavailable("the answer tells no level")
        return level

    async def _asked(self, call: _Call) -> _Reply:
        """Any answer but a 429, which is waited out if there is time."""
        if self._under_way >= self._policy.max_waiting:
            raise ChatUnavailable("too many questions are waiting")
        self._under_way += 1
        deadline = loop_time() + self._policy.timeout_seconds
        try:
            with telemetry.timed_provider(call.service):
                while True:
                    await self._until_allowed(call, deadline)
                    reply = await self._exchanged(call, deadline)
                    if reply.status != 429:
                        return reply
                    self._keep_still(call, reply)
        finally:
            self._under_way -= 1

    async def _until_allowed(self, call: _Call, deadline: float) -> None:
        now = loop_time()
        until = max(
            self._still_until.get((call.service, guild), now) for guild in (call.guild, _ALL_GUILDS)
        )
        if until >= deadline:
            raise ChatUnavailable("we are asked to wait", until - now)
        if until > now:
            await asyncio.sleep(until - now)

    def _keep_still(self, call: _Call, reply: _Reply) -> None:
        """A 429 without the platform's own body comes from what stands before it, and means all."""
        is_global = reply.field("global") is not False
        guild = _ALL_GUILDS if is_global else call.guild
        now = loop_time()
        self._still_until[call.service, guild] = now + _wait_wished(reply)

    async def _exchanged(self, call: _Call, deadline: float) -> _Reply:
        try:
            async with (
                asyncio.timeout_at(deadline),
                self._places,
                self._opened().get(
                    call.url, headers=call.headers, allow_redirects=False
                ) as response,
            ):
                body = await _bounded_body(response)
                return _Reply(response.status, response.headers, _json_in(body))
        except TimeoutError as error:
            raise ChatUnavailable("no answer in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ChatUnavailable(type(error).__name__) from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise ChatUnavailable("the client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._policy.max_concurrent),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={
                    "Accept": "application/json",
                    # The form that the platform demands of bots.
                    "User-Agent": f"DiscordBot (ltzd, {__version__})",
                },
                trust_env=False,
            )
        return self._session


def _filled(template: str, guild: str, account: str) -> str:
    return template.replace("{guild_id}", guild).replace("{user_id}", account)


def _plain(reply: _Reply) -> _Reply:
    if reply.status != 200:
        raise ChatUnavailable(f"status {reply.status}")
    return reply


def _wait_wished(reply: _Reply) -> float:
    """The body tells it to the millisecond, the header in whole seconds."""
    for wished in (reply.field("retry_after"), reply.headers.get("Retry-After")):
        try:
            seconds = float(wished) if isinstance(wished, int | float | str) else math.nan
        except ValueError:
            continue
        if math.isfinite(seconds):
            return min(max(seconds, _LEAST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS)
    return _USUAL_WAIT_SECONDS


def _json_in(body: bytes) -> object:
    try:
        return decode_json(body)
    except InvalidJsonError:
        return None


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_LARGEST_BODY_BYTES):
        body += chunk
        if len(body) > _LARGEST_BODY_BYTES:
            raise aiohttp.ClientPayloadError("the answer is too long")
    return bytes(body)
