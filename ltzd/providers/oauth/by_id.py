"""Looks up accounts by their id alone, at the five providers that can: requests and verdicts.

Bots, organizations and other accounts without a person's log-in are `missing`.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec

from ltzd import __version__
from ltzd.errors import AccountLookupUnavailable
from ltzd.providers.oauth.answers import (
    AccountVerification,
    cannot_check,
    check_same,
    missing,
    name_in,
    nested_object,
    refused,
    refused_or_unexpected,
    required_name,
    required_object,
    text_in,
    unexpected,
)
from ltzd.providers.oauth.calls import LookupCalls, LookupRequest
from ltzd.providers.oauth.policy import (
    DiscordAccess,
    GithubAccess,
    GoogleAccess,
    TelegramAccess,
    TwitterAccess,
)
from ltzd.providers.outbound.http_client import HttpResponse
from ltzd.rules.oauth.accounts import OAuthAccount

_DISCORD_UNKNOWN_USER: Final = 10013
_DISCORD_INVALID_FORM: Final = 50035
_TWITTER_NOT_FOUND: Final = "/problems/resource-not-found"
_TWITTER_FORBIDDEN: Final = ("/problems/resource-unavailable", "/problems/not-authorized-for-")
_GITHUB_VERSION: Final = "2022-11-28"


class LookupById(msgspec.Struct, frozen=True):
    """`make_request` takes an id that is quoted for a URL; `verdict` takes the id as it is."""

    make_request: Callable[[str], LookupRequest]
    verdict: Callable[[HttpResponse, str], AccountVerification]
    calls: LookupCalls

    async def verify(self, account: OAuthAccount, deadline: float) -> AccountVerification:
        # The id's form was checked; it is quoted here so that the URL is safe without that check.
        request = self.make_request(quote(account.user_id, safe=""))
        return self.verdict(await self.calls.send(request, deadline), account.user_id)


def discord(access: DiscordAccess, calls: LookupCalls) -> LookupById:
    headers = {
        "Authorization": f"Bot {access.token}",
        "User-Agent": f"DiscordBot (ltzd, {__version__})",  # the form demanded of bots
    }
    return LookupById(
        lambda id_: LookupRequest(f"{access.base_url}/users/{id_}", headers), discord_verdict, calls
    )


def discord_verdict(response: HttpResponse, user_id: str) -> AccountVerification:
    match response.status, nested_object(response).get("code"):
        case 200, _:
            return _discord_user(required_object(response), user_id)
        case 404, code if code == _DISCORD_UNKNOWN_USER:
            return missing("Discord knows no user with this id")
        case 400, code if code == _DISCORD_INVALID_FORM:
            return missing("Discord does not accept this as a user's id")
    raise refused_or_unexpected("discord", response)


def _discord_user(user: dict[str, object], user_id: str) -> AccountVerification:
    check_same(user_id, user.get("id"))
    if user.get("bot") is True or user.get("system") is True:
        return missing("The account is not a person's but a bot's or Discord's own")
    username = required_name(user, "username")
    discriminator = text_in(user, "discriminator")
    # Four digits distinguish accounts that have not moved to the new names.
    if len(discriminator) == 4 and discriminator != "0000":
        username = f"{username}#{discriminator}"
    return AccountVerification("exists", username, name_in(user, "global_name"))


def twitter(access: TwitterAccess, calls: LookupCalls) -> LookupById:
    headers = {"Authorization": f"Bearer {access.token}"}
    return LookupById(
        lambda id_: LookupRequest(f"{access.base_url}/users/{id_}", headers), twitter_verdict, calls
    )


def twitter_verdict(response: HttpResponse, user_id: str) -> AccountVerification:
    """An unknown account is an error in a body with status 200."""
    if response.status != 200:
        raise refused_or_unexpected("twitter", response)
    body = required_object(response)
    user, errors = body.get("data"), body.get("errors")
    if isinstance(user, dict):
        check_same(user_id, user.get("id"))
        return AccountVerification("exists", required_name(user, "username"), name_in(user, "name"))
    first = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(first, dict):
        raise AccountLookupUnavailable("an answer without a user")
    return _twitter_error(first, user_id)


def _twitter_error(error: dict[str, object], user_id: str) -> AccountVerification:
    kind = text_in(error, "type")
    if kind.endswith(_TWITTER_NOT_FOUND):
        check_same(user_id, error.get("resource_id", user_id))
        return missing("Twitter knows no user with this id")
    if error.get("title") == "Forbidden" or any(part in kind for part in _TWITTER_FORBIDDEN):
        return cannot_check("Twitter does not show this user, who may be suspended")
    raise AccountLookupUnavailable("an error of an unknown kind")


def github(access: GithubAccess, calls: LookupCalls) -> LookupById:
    headers = {
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": _GITHUB_VERSION,
    }
    if access.token is not None:
        headers["Authorization"] = f"Bearer {access.token}"
    return LookupById(
        lambda id_: LookupRequest(f"{access.base_url}/user/{id_}", headers), github_verdict, calls
    )


def github_verdict(response: HttpResponse, user_id: str) -> AccountVerification:
    match response.status, nested_object(response).get("message"):
        case 200, _:
            return _github_user(required_object(response), user_id)
        case 404, "Not Found":
            return missing("GitHub knows no user with this id")
    raise refused_or_unexpected("github", response)


def _github_user(user: dict[str, object], user_id: str) -> AccountVerification:
    check_same(int(user_id), user.get("id"))
    if user.get("type") != "User":
        return missing("The account is not a person's but an organization's or a bot's")
    username = required_name(user, "login")
    return AccountVerification("exists", username, name_in(user, "name"), name_in(user, "email"))


def telegram(access: TelegramAccess, calls: LookupCalls) -> LookupById:
    url = f"{access.base_url}/bot{quote(access.token, safe=':')}/getChat?chat_id="
    return LookupById(lambda id_: LookupRequest(url + id_), telegram_verdict, calls)


def telegram_verdict(response: HttpResponse, user_id: str) -> AccountVerification:
    """The bot is told "chat not found" of every user who has not written to it."""
    body = nested_object(response)
    if response.status == 200:
        check_same(True, body.get("ok"))
        chat = nested_object(response, "result")
        check_same(int(user_id), chat.get("id"))
        check_same("private", chat.get("type"))
        names = (name_in(chat, "first_name"), name_in(chat, "last_name"))
        full_name = " ".join(name for name in names if name is not None)
        return AccountVerification("exists", name_in(chat, "username"), full_name or None)
    if response.status == 400 and "chat not found" in text_in(body, "description").lower():
        return cannot_check("Telegram shows our bot only users who have written to it")
    if response.status in {401, 403, 404}:  # 404: the token is malformed
        raise refused("telegram", response)
    raise unexpected(response)


def google(access: GoogleAccess, calls: LookupCalls) -> LookupById:
    query = f"?personFields=names&key={quote(access.api_key, safe='')}"
    return LookupById(
        lambda id_: LookupRequest(f"{access.base_url}/people/{id_}{query}"), google_verdict, calls
    )


def google_verdict(response: HttpResponse, user_id: str) -> AccountVerification:
    """Names are seldom public; addresses never are to a caller with an API key."""
    if response.status == 200:
        person = required_object(response)
        check_same(f"people/{user_id}", person.get("resourceName"))
        names = person.get("names")
        first = names[0] if isinstance(names, list) and names else None
        name = name_in(first, "displayName") if isinstance(first, dict) else None
        return AccountVerification("exists", name=name)
    status = nested_object(response, "error").get("status")
    if response.status == 404 and status == "NOT_FOUND":
        return missing("Google knows no account with this id")
    if response.status in {400, 401, 403}:  # 400: the key is malformed
        raise refused("google", response)
    raise unexpected(response)
