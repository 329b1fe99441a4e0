"""Instagram and TikTok, which tell strangers of an account by its username only.

The ids that their log-ins give are those of an account at one application, so they can be compared
with nothing: `exists` says here that somebody has the username, not that the id is his. Nobody is
ever missing, as both keep silent about most accounts, such as personal and young people's ones.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from ltzd.errors import AccountRefused
from ltzd.providers.oauth.answers import (
    AccountLookupUnavailable,
    AccountVerification,
    Answer,
    cannot_check,
    name_in,
    needed_name,
    number_in,
    refused,
    text_in,
    unexpected,
)
from ltzd.providers.oauth.calls import LookupCalls, Question
from ltzd.providers.oauth.client_tokens import ClientTokens
from ltzd.providers.oauth.policy import InstagramAccess, TiktokAccess
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.rules.oauth.ids import bare_username, check_username, is_same_username

_SILENT: Final = (110, 2207013)
_GRAPH_LIMITS: Final = frozenset({4, 17, 32, 613})
_GRAPH_LIMIT_SECONDS: Final = 60.0
"""The graph API refuses too many questions with status 400 or 403, and for up to an hour."""
_GRAPH_REFUSED: Final = frozenset({10, 102, 190, 200})
_NO_NAME: Final = cannot_check("Without a username this provider cannot be asked")
_TIKTOK_REFUSED: Final = frozenset(
    {"access_token_invalid", "access_token_expired", "scope_not_authorized", "invalid_client"}
)


class InstagramLookup:
    """Business discovery."""

    def __init__(self, access: InstagramAccess, calls: LookupCalls) -> None:
        self._access = access
        self._calls = calls

    async def verify(self, account: OAuthAccount, deadline: float) -> AccountVerification:
        username = _askable(account)
        if username is None:
            return _NO_NAME
        fields = quote(f"business_discovery.username({username}){{id,username,ig_id}}", "")
        token = quote(self._access.token, safe="")
        page = f"{self._access.base_url}/{quote(self._access.user_id, safe='')}"
        question = Question(f"{page}?fields={fields}&access_token={token}")
        answer = await self._calls.ask(question, deadline)
        if answer.status != 200 and number_in(answer.part("error"), "code") in _GRAPH_LIMITS:
            self._calls.keep_still(_GRAPH_LIMIT_SECONDS)
            raise AccountLookupUnavailable("too many questions")
        return instagram_verdict(answer, username)


def instagram_verdict(answer: Answer, username: str) -> AccountVerification:
    if answer.status == 200:
        found = answer.part("business_discovery")
        name = needed_name(found, "username")
        if not is_same_username("instagram", name, username):
            raise AccountLookupUnavailable("the account is not the one asked for")
        return AccountVerification("exists", name)
    error = answer.part("error")
    code = number_in(error, "code")
    if (code, number_in(error, "error_subcode")) == _SILENT:
        return cannot_check("Instagram tells of professional accounts only")
    if code in _GRAPH_REFUSED or answer.status == 401:
        raise refused("instagram", answer)
    raise unexpected(answer)


class TiktokLookup:
    """The research API."""

    def __init__(self, access: TiktokAccess, calls: LookupCalls) -> None:
        self._url = f"{access.base_url}/research/user/info/?fields=display_name"
        self._calls = calls
        form = {
            "client_key": access.client_key,
            "client_secret": access.client_secret,
            "grant_type": "client_credentials",
        }
        asking = Question(f"{access.base_url}/oauth/token/", method="POST", form=form)
        self._tokens = ClientTokens("tiktok", asking, calls)

    async def verify(self, account: OAuthAccount, deadline: float) -> AccountVerification:
        username = _askable(account)
        if username is None:
            return _NO_NAME
        answer = await self._asked(username, deadline)
        if answer.status == 401:  # the token ended early: once more, with another
            answer = await self._asked(username, deadline)
        return tiktok_verdict(answer, username)

    async def _asked(self, username: str, deadline: float) -> Answer:
        token = await self._tokens.token(deadline)
        headers = {"Authorization": f"Bearer {token}"}
        question = Question(self._url, headers, "POST", json={"username": username})
        answer = await self._calls.ask(question, deadline)
        if answer.status == 401:
            self._tokens.forget(token)
        return answer


def tiktok_verdict(answer: Answer, username: str) -> AccountVerification:
    code = text_in(answer.part("error"), "code")
    if answer.status == 200 and code == "ok":
        return _found(answer.json_object(), username)
    if answer.status in {401, 403} or code in _TIKTOK_REFUSED:
        raise refused("tiktok", answer)
    if answer.status in {200, 400, 404} and code not in {"", "ok", "internal_error"}:
        return cannot_check("TikTok does not tell of this account")
    raise unexpected(answer)


def _found(body: Mapping[str, object], username: str) -> AccountVerification:
    user = body.get("data")
    if not isinstance(user, dict) or not user:
        raise AccountLookupUnavailable("an answer without a user")
    return AccountVerification("exists", username, name_in(user, "display_name"))


def _askable(account: OAuthAccount) -> str | None:
    """None without a username, or with one that could say more than a name in the question."""
    if account.username is None:
        return None
    try:
        check_username(account.provider, account.username)
    except AccountRefused:
        return None
    return bare_username(account.username)
