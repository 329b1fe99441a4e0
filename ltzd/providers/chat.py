"""The one client of the chat platform's guilds: a member's roles and level.

Speaks Discord's API for roles; levels come from a URL that the levelling bot answers. An unclear
answer of either raises ChatUnavailable and never means "no member". After a 429 no request is sent
until the named time: to the guild that it names, or to the whole service.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ltzd import __version__, telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.fair_slots import FairSlots
from ltzd.errors import Unavailable
from ltzd.providers.outbound.http_client import (
    AsyncCloseable,
    HttpClient,
    HttpResponse,
    RequestFailed,
)
from ltzd.providers.outbound.json_bodies import finite_number
from ltzd.rules.constraints.constraints import ChatConstraint, ChatLevel, ChatRole, is_snowflake
from ltzd.rules.constraints.json_paths import Json

_ABSENT: Final = frozenset({10007, 10013})
"""The platform's codes for an unknown member and an unknown user; an unknown guild has another."""
_MAX_BODY_BYTES: Final = 64 * 1024
_MIN_WAIT_SECONDS: Final = 0.25
_DEFAULT_WAIT_SECONDS: Final = 1.0
_MAX_WAIT_SECONDS: Final = 3600.0
_MAX_ROLES: Final = 1_000
_PLACEHOLDERS: Final = ("{guild_id}", "{user_id}")
_ALL_GUILDS: Final = ""
_ROLES, _LEVELS = "chat_roles", "chat_levels"
_SERVICES: Final = (_ROLES, _LEVELS)


@dataclass(frozen=True, slots=True)
class ChatPolicy:
    """`base_url` is the platform's API with its version, `token` our bot's, which must be in the
    guilds. `levels_url` holds {guild_id} and {user_id}. `timeout_seconds` bounds one call of
    `observe`, with its waiting for a slot and for the end of a 429. `max_concurrent` holds for
    roles and for levels alone: a hanging levelling bot delays no role. Guilds take turns, and
    `max_waiting` holds for each guild alone: a guild with many claims delays no other brand's."""

    base_url: str = "https://discord.com/api/v10"
    token: str | None = field(default=None, repr=False)
    levels_url: str | None = field(default=None, repr=False)
    timeout_seconds: float = 5.0
    max_concurrent: int = 16
    max_waiting: int = 1_000


class ChatUnavailable(Unavailable):
    """`reason` is fit for a log; a repeat is useless before `wait_seconds` have passed."""

    def __init__(self, reason: str, wait_seconds: float = 0.0) -> None:
        super().__init__("The chat platform gave no usable answer", reason=reason)
        self.reason = reason
        self.wait_seconds = wait_seconds


def validate_levels_url(text: str) -> str:
    """Return `text`. Raises ValueError for a template without both placeholders."""
    if any(text.count(placeholder) != 1 for placeholder in _PLACEHOLDERS):
        raise ValueError("must hold {guild_id} and {user_id}, each once")
    if re.search(r"[{}]", _filled(text, "", "")):
        raise ValueError("may hold no other braces")
    return text


@dataclass(frozen=True, slots=True)
class _Request:
    service: str
    guild: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class ChatPlatform(AsyncCloseable):
    def __init__(self, policy: ChatPolicy) -> None:
        self._policy = policy
        self._slots: Mapping[str, FairSlots[str]] = {
            service: FairSlots(policy.max_concurrent) for service in _SERVICES
        }
        self._in_flight: Counter[tuple[str, str]] = Counter()
        """By service and guild."""
        self._paused_until: dict[tuple[str, str], float] = {}
        self._http = HttpClient(
            max_body_bytes=_MAX_BODY_BYTES,
            max_connections=policy.max_concurrent * len(_SERVICES),
            headers={
                "Accept": "application/json",
                # The form that the platform demands of bots.
                "User-Agent": f"DiscordBot (ltzd, {__version__})",
            },
        )

    async def close(self) -> None:
        await self._http.close()

    async def observe(self, constraint: ChatConstraint, account: str) -> Json:
        """Return the account's roles or level in the guild, for `constraints.is_satisfied`.

        None if there is no such member. Raises ChatUnavailable.
        """
        if not is_snowflake(account):
            return None  # no account of the platform has such an id
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
        response = await self._send(_Request(_ROLES, guild, url, headers))
        if response.status == 404 and _field(response, "code") in _ABSENT:
            return None
        _refuse_other_than_200(response)
        roles = _field(response, "roles")
        if not isinstance(roles, list) or len(roles) > _MAX_ROLES:
            raise ChatUnavailable("the answer lists no roles")
        return [role for role in roles if isinstance(role, str)]

    async def _level(self, guild: str, account: str) -> Json:
        template = self._policy.levels_url
        if template is None:
            raise ChatUnavailable("no URL of levels is configured")
        url = _filled(template, guild, account)
        response = await self._send(_Request(_LEVELS, guild, url))
        if response.status == 404:
            return None  # the bot has no level for an account that it has never met
        _refuse_other_than_200(response)
        level = _field(response, "level")
        if not isinstance(level, int) or isinstance(level, bool):
            raise ChatUnavailable("the answer has no level")
        return level

    async def _send(self, request: _Request) -> HttpResponse:
        """Return any answer but a 429, which is waited out if there is time."""
        party = request.service, request.guild
        if self._in_flight[party] >= self._policy.max_waiting:
            raise ChatUnavailable("too many requests are waiting")
        self._in_flight[party] += 1
        deadline = loop_time() + self._policy.timeout_seconds
        try:
            with telemetry.timed_provider(request.service):
                while True:
                    await self._wait_for_pause(request, deadline)
                    response = await self._attempt(request, deadline)
                    if response.status != 429:
                        return response
                    self._pause(request, response)
        finally:
            self._in_flight[party] -= 1
            if not self._in_flight[party]:
                del self._in_flight[party]

    async def _wait_for_pause(self, request: _Request, deadline: float) -> None:
        now = loop_time()
        until = max(
            self._paused_until.get((request.service, guild), now)
            for guild in (request.guild, _ALL_GUILDS)
        )
        if until >= deadline:
            raise ChatUnavailable("the platform asks us to wait", until - now)
        if until > now:
            await asyncio.sleep(until - now)

    def _pause(self, request: _Request, response: HttpResponse) -> None:
        """A 429 without the platform's own body comes from a proxy before it, and means all
        guilds."""
        is_global = _field(response, "global") is not False
        guild = _ALL_GUILDS if is_global else request.guild
        self._paused_until[request.service, guild] = loop_time() + _requested_wait(response)

    async def _attempt(self, request: _Request, deadline: float) -> HttpResponse:
        try:
            slot = self._slots[request.service].slot(request.guild)
            async with asyncio.timeout_at(deadline), slot:
                return await self._http.request("GET", request.url, headers=request.headers)
        except TimeoutError as error:
            raise ChatUnavailable("no answer in time") from error
        except RequestFailed as error:
            raise ChatUnavailable(error.reason) from error
        except ValueError as error:  # of a header or URL that cannot be sent
            raise ChatUnavailable(type(error).__name__) from error


def _filled(template: str, guild: str, account: str) -> str:
    return template.replace("{guild_id}", guild).replace("{user_id}", account)


def _field(response: HttpResponse, name: str) -> object:
    return (response.json_object() or {}).get(name)


def _refuse_other_than_200(response: HttpResponse) -> None:
    if response.status != 200:
        raise ChatUnavailable(f"status {response.status}")


def _requested_wait(response: HttpResponse) -> float:
    """The body has it to the millisecond, the header in whole seconds."""
    for value in (_field(response, "retry_after"), response.headers.get("Retry-After")):
        seconds = finite_number(value)
        if seconds is not None:
            return min(max(seconds, _MIN_WAIT_SECONDS), _MAX_WAIT_SECONDS)
    return _DEFAULT_WAIT_SECONDS
