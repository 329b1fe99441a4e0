"""The five providers that tell of an account by its id alone: the question, and what answers mean.

Bots, organizations and other accounts that nobody logs in with count as missing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ltzd import __version__
from ltzd.providers.oauth.answers import (
    AccountLookupUnavailable,
    AccountVerification,
    Answer,
    cannot_check,
    missing,
    must_be,
    name_in,
    needed_name,
    refused,
    refused_or_unexpected,
    text_in,
    unexpected,
)
from ltzd.providers.oauth.calls import LookupCalls, Question
from ltzd.providers.oauth.policy import (
    DiscordAccess,
    GithubAccess,
    GoogleAccess,
    TelegramAccess,
    TwitterAccess,
)
from ltzd.rules.oauth.accounts import OAuthAccount

_DISCORD_UNKNOWN_USER: Final = 10013
_DISCORD_INVALID_FORM: Final = 50035
_TWITTER_NOT_FOUND: Final = "/problems/resource-not-found"
_TWITTER_FORBIDDEN: Final = ("/problems/resource-unavailable", "/problems/not-authorized-for-")
_GITHUB_VERSION: Final = "2022-11-28"


@dataclass(frozen=True, slots=True)
class LookupById:
    question: Callable[[str], Question]
    verdict: Callable[[Answer, str], AccountVerification]
    calls: LookupCalls

    async def verify(self, account: OAuthAccount, deadline: float) -> AccountVerification:
        # Its form is checked, but what goes into a URL is made fit for it where it does.
        answer = await self.calls.ask(self.question(quote(account.user_id, safe="")), deadline)
        return self.verdict(answer, account.user_id)


def discord(access: DiscordAccess, calls: LookupCalls) -> LookupById:
    headers = {
        "Authorization": f"Bot {access.token}",
        "User-Agent": f"DiscordBot (ltzd, {__version__})",  # the form demanded of bots
    }
    return LookupById(
        lambda id_: Question(f"{access.base_url}/users/{id_}", headers), discord_verdict, calls
    )


def discord_verdict(answer: Answer, user_id: str) -> AccountVerification:
    match answer.status, answer.part().get("code"):
        case 200, _:
            return _discord_user(answer.json_object(), user_id)
        case 404, code if code == _DISCORD_UNKNOWN_USER:
            return missing("Discord knows no user with this id")
        case 400, code if code == _DISCORD_INVALID_FORM:
            return missing("Discord says that this is no id of a user")
    raise refused_or_unexpected("discord", answer)


def _discord_user(user: dict[str, object], user_id: str) -> AccountVerification:
    must_be(user_id, user.get("id"))
    if user.get("bot") is True or user.get("system") is True:
        return missing("The account is not a person's but a bot's or Discord's own")
    username = needed_name(user, "username")
    number = text_in(user, "discriminator")
    # Accounts that have not moved to the new names are told apart by four digits.
    if len(number) == 4 and number != "0000":
        username = f"{username}#{number}"
    return AccountVerification("exists", username, name_in(user, "global_name"))


def twitter(access: TwitterAccess, calls: LookupCalls) -> LookupById:
    headers = {"Authorization": f"Bearer {access.token}"}
    return LookupById(
        lambda id_: Question(f"{access.base_url}/users/{id_}", headers), twitter_verdict, calls
    )


def twitter_verdict(answer: Answer, user_id: str) -> AccountVerification:
    """An unknown account is an error in a body that comes with status 200."""
    if answer.status != 200:
        raise refused_or_unexpected("twitter", answer)
    body = answer.json_object()
    user, errors = body.get("data"), body.get("errors")
    if isinstance(user, dict):
        must_be(user_id, user.get("id"))
        return AccountVerification("exists", needed_name(user, "username"), name_in(user, "name"))
    first = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(first, dict):
        raise AccountLookupUnavailable("an answer without a user")
    return _twitter_error(first, user_id)


def _twitter_error(error: dict[str, object], user_id: str) -> AccountVerification:
    kind = text_in(error, "type")
    if kind.endswith(_TWITTER_NOT_FOUND):
        must_be(user_id, error.get("resource_id", user_id))
        return missing("Twitter knows no user with this id")
    if error.get("title") == "Forbidden" or any(part in kind for part in _TWITTER_FORBIDDEN):
        return cannot_check("Twitter tells nothing of this user, who may be suspended")
    raise AccountLookupUnavailable("an error of an unknown kind")


def github(access: GithubAccess, calls: LookupCalls) -> LookupById:
    headers = {
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": _GITHUB_VERSION,
    }
    if access.token is not None:
        headers["Authorization"] = f"Bearer {access.token}"
    return LookupById(
        lambda id_: Question(f"{access.base_url}/user/{id_}", headers), github_verdict, calls
    )


def github_verdict(answer: Answer, user_id: str) -> AccountVerification:
    match answer.status, answer.part().get("message"):
        case 200, _:
            return _github_user(answer.json_object(), user_id)
        case 404, "Not Found":
            return missing("GitHub knows no user with this id")
    raise refused_or_unexpected("github", answer)


def _github_user(user: dict[str, object], user_id: str) -> AccountVerification:
    must_be(int(user_id), user.get("id"))
    if user.get("type") != "User":
        return missing("The account is not a person's but an organization's or a bot's")
    username = needed_name(user, "login")
    return AccountVerification("exists", username, name_in(user, "name"), name_in(user, "email"))


def telegram(access: TelegramAccess, calls: LookupCalls) -> LookupById:
    url = f"{access.base_url}/bot{quote(access.token, safe=':')}/getChat?chat_id="
    return LookupById(lambda id_: Question(url + id_), telegram_verdict, calls)


def telegram_verdict(answer: Answer, user_id: str) -> AccountVerification:
    """The bot hears "chat not found" of everybody who has not written to it."""
    body = answer.part()
    if answer.status == 200:
        must_be(True, body.get("ok"))
        chat = answer.part("result")
        must_be(int(user_id), chat.get("id"))
        must_be("private", chat.get("type"))
        names = (name_in(chat, "first_name"), name_in(chat, "last_name"))
        full_name = " ".join(name for name in names if name is not None)
        return AccountVerification("exists", name_in(chat, "username"), full_name or None)
    if answer.status == 400 and "chat not found" in text_in(body, "description").lower():
        return cannot_check("Telegram tells our bot only of those who have written to it")
    if answer.status in {401, 403, 404}:  # 404: what it says to a token that cannot be one
        raise refused("telegram", answer)
    raise unexpected(answer)


def google(access: GoogleAccess, calls: LookupCalls) -> LookupById:
    query = f"?personFields=names&key={quote(access.api_key, safe='')}"
    return LookupById(
        lambda id_: Question(f"{access.base_url}/people/{id_}{query}"), google_verdict, calls
    )


def google_verdict(answer: Answer, user_id: str) -> AccountVerification:
    """Names are seldom public; an address never is to who asks with a key."""
    if answer.status == 200:
        person = answer.json_object()
        must_be(f"people/{user_id}", person.get("resourceName"))
        names = person.get("names")
        first = names[0] if isinstance(names, list) and names else None
        shown = name_in(first, "displayName") if isinstance(first, dict) else None
        return AccountVerification("exists", name=shown)
    status = answer.part("error").get("status")
    if answer.status == 404 and status == "NOT_FOUND":
        return missing("Google knows no account with this id")
    if answer.status in {400, 401, 403}:  # 400: what it says to a key that is none
        raise refused("google", answer)
    raise unexpected(answer)
