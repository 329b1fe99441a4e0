"""The control endpoint for OAuth accounts: existence, username, and membership in Discord guilds.

POST {"provider", "id", "username"?, "known"?}. A Discord account also takes "guildId" with "roles",
"level" or "member": roles make the user a member, `"member": false` removes the user. Omitted
fields keep their values.
"""

from typing import Final

from aiohttp import web
from msgspec.structs import replace

from ltzd.dev.sandbox.oauth.account_store import AccountStore, GuildMember
from ltzd.dev.sandbox.requests import (
    BadInputError,
    Body,
    allow_only,
    control_body,
    json_reply,
    list_in,
    text_in,
    whole_number_in,
)
from ltzd.errors import AccountRefused
from ltzd.rules.constraints.constraints import is_snowflake
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthProvider
from ltzd.rules.oauth.ids import OAuthIdInvalid, bare_username, check_id, check_username

_GUILD_FIELDS: Final = ("guildId", "roles", "level", "member")
_MAX_ROLES: Final = 250
_MAX_LEVEL: Final = 1_000_000_000


class AccountControl:
    def __init__(self, store: AccountStore) -> None:
        self._store = store

    async def handle(self, request: web.Request) -> web.Response:
        body = await control_body(request)
        allow_only(body, "provider", "id", "username", "known", *_GUILD_FIELDS)
        provider = _provider_in(body)
        account_id = _id_in(body, provider)
        username = _username_in(body, provider)
        member = self._member_in(body, provider, account_id)
        is_known = _flag_in(body, "known")
        account = await self._store.set_account(provider, account_id, username, is_known)
        answer: dict[str, object] = {
            "provider": provider,
            "id": account_id,
            "username": account.username,
            "known": account.is_known,
        }
        if member is not None:
            guild = text_in(body, "guildId")
            await self._store.set_member(guild, account_id, member)
            answer |= {"guildId": guild, "roles": member.roles, "level": member.level}
        return json_reply(answer)

    def _member_in(self, body: Body, provider: OAuthProvider, user: str) -> GuildMember | None:
        """Return the changed member, or None if the request names no guild."""
        if "guildId" not in body:
            for name in _GUILD_FIELDS:
                if name in body:
                    raise BadInputError("guildId", f"is required with {name}")
            return None
        if provider != "discord":
            raise BadInputError("guildId", "is for discord only")
        guild = text_in(body, "guildId")
        if not is_snowflake(guild):
            raise BadInputError("guildId", "must be 17 to 20 digits")
        member = self._store.member(guild, user)
        if "level" in body:
            member = replace(member, level=whole_number_in(body, "level", 0, _MAX_LEVEL))
        if "roles" in body:
            member = replace(member, roles=_roles_in(body))
        return _with_membership(member, _flag_in(body, "member"))


def _with_membership(member: GuildMember, is_member: bool | None) -> GuildMember:
    if is_member is None:
        return member
    return replace(member, roles=(member.roles or ()) if is_member else None)


def _provider_in(body: Body) -> OAuthProvider:
    given = text_in(body, "provider")
    for provider in PROVIDERS:
        if provider == given:
            return provider
    raise BadInputError("provider", f"must be one of {', '.join(PROVIDERS)}")


def _id_in(body: Body, provider: OAuthProvider) -> str:
    account_id = text_in(body, "id")
    try:
        check_id(provider, account_id)
    except OAuthIdInvalid as error:
        raise BadInputError("id", f"{error.reason}, such as {error.example}") from None
    return account_id


def _username_in(body: Body, provider: OAuthProvider) -> str | None:
    if "username" not in body:
        return None
    username = text_in(body, "username")
    try:
        check_username(provider, username)
    except AccountRefused as error:
        raise BadInputError("username", str(error.details["hint"])) from None
    return bare_username(username)


def _flag_in(body: Body, name: str) -> bool | None:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadInputError(name, "must be true or false")
    return value


def _roles_in(body: Body) -> tuple[str, ...]:
    roles = list_in(body, "roles", _MAX_ROLES)
    role_ids = tuple(role for role in roles if isinstance(role, str) and is_snowflake(role))
    if len(role_ids) < len(roles):
        raise BadInputError("roles", "must be a list of ids, each 17 to 20 digits in quotes")
    return role_ids
