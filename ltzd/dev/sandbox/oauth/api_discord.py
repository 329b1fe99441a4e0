"""Discord's users and guild members, and the levels of a levelling bot."""

from datetime import UTC, datetime

from aiohttp import web

from ltzd.dev.sandbox.oauth.account_store import AccountStore, ProviderAccount
from ltzd.dev.sandbox.oauth.credentials import AccountCredentials
from ltzd.dev.sandbox.oauth.errors import PREFIX
from ltzd.dev.sandbox.requests import json_reply
from ltzd.rules.constraints.constraints import is_snowflake

API = f"{PREFIX}/discord/api/v10"
LEVELS = f"{PREFIX}/levels"


class DiscordApi:
    """ltzd's bot is in every guild; the levels need no authentication."""

    def __init__(self, store: AccountStore, credentials: AccountCredentials) -> None:
        self._store = store
        self._credentials = credentials

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(API + "/users/{user}", self._user),
            web.get(API + "/guilds/{guild}/members/{user}", self._member),
            web.get(LEVELS + "/{guild}/{user}", self._level),
        ]

    async def _user(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request, "user")
        if refusal is not None:
            return refusal
        account = self._store.find("discord", request.match_info["user"])
        return _error(404, "Unknown User", 10013) if account is None else json_reply(_user(account))

    async def _member(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request, "guild", "user")
        if refusal is not None:
            return refusal
        guild, user = request.match_info["guild"], request.match_info["user"]
        account = self._store.find("discord", user)
        if account is None:
            return _error(404, "Unknown User", 10013)
        roles = self._store.member(guild, user).roles
        if roles is None:
            return _error(404, "Unknown Member", 10007)
        return json_reply(
            {
                "user": _user(account),
                "nick": None,
                "avatar": None,
                "banner": None,
                "roles": roles,
                "joined_at": datetime.now(UTC).isoformat(),
                "premium_since": None,
                "deaf": False,
                "mute": False,
                "flags": 0,
                "pending": False,
                "communication_disabled_until": None,
            }
        )

    async def _level(self, request: web.Request) -> web.Response:
        level = self._store.member(request.match_info["guild"], request.match_info["user"]).level
        return json_reply({"error": "not found"}, 404) if level is None else _level_reply(level)

    def _refusal(self, request: web.Request, *ids: str) -> web.Response | None:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bot" or not self._credentials.matches("discord", token):
            return _error(401, "401: Unauthorized", 0)
        if not request.headers.get("User-Agent", "").startswith("DiscordBot ("):
            return _error(403, "internal network error", 40333)
        for name in ids:
            if not is_snowflake(request.match_info[name]):
                return _invalid_form(f"{name}_id", request.match_info[name])
        return None


def _level_reply(level: int) -> web.Response:
    return json_reply({"level": level})


def _user(account: ProviderAccount) -> dict[str, object]:
    name, _, number = account.username.partition("#")
    return {
        "id": account.id,
        "username": name,
        "avatar": None,
        "discriminator": number or "0",
        "public_flags": 0,
        "flags": 0,
        "banner": None,
        "accent_color": None,
        "global_name": None if number else name,
    }


def _error(status: int, message: str, code: int) -> web.Response:
    return json_reply({"message": message, "code": code}, status)


def _invalid_form(field: str, value: str) -> web.Response:
    fault = {"code": "NUMBER_TYPE_COERCE", "message": f'Value "{value}" is not snowflake.'}
    body = {"message": "Invalid Form Body", "code": 50035, "errors": {field: {"_errors": [fault]}}}
    return json_reply(body, 400)
