"""Looks up Instagram and TikTok accounts, which can be looked up by username only.

The ids of their log-ins belong to an account at one application, so they cannot be compared:
`exists` says that somebody has the username, not that the id is that account's. No account is ever
`missing`, as both providers hide most accounts, such as personal and young people's ones.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from ltzd.errors import AccountLookupUnavailable, AccountRefused
from ltzd.providers.oauth.answers import (
    AccountVerification,
    cannot_check,
    name_in,
    nested_object,
    number_in,
    refused,
    required_name,
    required_object,
    text_in,
    unexpected,
)
from ltzd.providers.oauth.calls import LookupCalls, LookupRequest
from ltzd.providers.oauth.client_tokens import ClientTokens
from ltzd.providers.oauth.policy import InstagramAccess, TiktokAccess
from ltzd.providers.outbound.http_client import HttpResponse
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.rules.oauth.ids import bare_username, check_username, is_same_username

_HIDDEN_ACCOUNT: Final = (110, 2207013)
_GRAPH_RATE_LIMITS: Final = frozenset({4, 17, 32, 613})
_GRAPH_PAUSE_SECONDS: Final = 60.0
"""The graph API refuses too many requests with status 400 or 403, and for up to an hour."""
_GRAPH_REFUSALS: Final = frozenset({10, 102, 190, 200})
_NO_USERNAME: Final = cannot_check("Accounts of this provider can be checked only with a username")
_TIKTOK_REFUSALS: Final = frozenset(
    {"access_token_invalid", "access_token_expired", "scope_not_authorized", "invalid_client"}
)


class InstagramLookup:
    """Uses business discovery."""

    def __init__(self, access: InstagramAccess, calls: LookupCalls) -> None:
        self._access = access
        self._calls = calls

    async def verify(self, account: OAuthAccount, deadline: float) -> AccountVerification:
        username = _valid_username(account)
        if username is None:
            return _NO_USERNAME
        fields = quote(f"business_discovery.username({username}){{id,username,ig_id}}", "")
        token = quote(self._access.token, safe="")
        page = f"{self._access.base_url}/{quote(self._access.user_id, safe='')}"
        request = LookupRequest(f"{page}?fields={fields}&access_token={token}")
        response = await self._calls.send(request, deadline)
        code = number_in(nested_object(response, "error"), "code")
        if response.status != 200 and code in _GRAPH_RATE_LIMITS:
            self._calls.pause(_GRAPH_PAUSE_SECONDS)
            raise AccountLookupUnavailable("too many requests")
        return instagram_verdict(response, username)


def instagram_verdict(response: HttpResponse, username: str) -> AccountVerification:
    if response.status == 200:
        name = required_name(nested_object(response, "business_discovery"), "username")
        if not is_same_username("instagram", name, username):
            raise AccountLookupUnavailable("the answer is about another account")
        return AccountVerification("exists", name)
    error = nested_object(response, "error")
    code = number_in(error, "code")
    if (code, number_in(error, "error_subcode")) == _HIDDEN_ACCOUNT:
        return cannot_check("Instagram shows professional accounts only")
    if code in _GRAPH_REFUSALS or response.status == 401:
        raise refused("instagram", response)
    raise unexpected(response)


class TiktokLookup:
    """Uses the research API."""

    def __init__(self, access: TiktokAccess, calls: LookupCalls) -> None:
        self._url = f"{access.base_url}/research/user/info/?fields=display_name"
        form = {
            "client_key": access.client_key,
            "client_secret": access.client_secret,
            "grant_type": "client_credentials",
        }
        token_request = LookupRequest(f"{access.base_url}/oauth/token/", method="POST", form=form)
        self._tokens = ClientTokens("tiktok", token_request, calls)

    async def verify(self, account: OAuthAccount, deadline: float) -> AccountVerification:
        username = _valid_username(account)
        if username is None:
            return _NO_USERNAME
        request = LookupRequest(self._url, method="POST", json={"username": username})
        return tiktok_verdict(await self._tokens.send(request, deadline), username)


def tiktok_verdict(response: HttpResponse, username: str) -> AccountVerification:
    code = text_in(nested_object(response, "error"), "code")
    if response.status == 200 and code == "ok":
        return _tiktok_user(required_object(response), username)
    if response.status in {401, 403} or code in _TIKTOK_REFUSALS:
        raise refused("tiktok", response)
    if response.status in {200, 400, 404} and code not in {"", "ok", "internal_error"}:
        return cannot_check("TikTok does not show this account")
    raise unexpected(response)


def _tiktok_user(body: Mapping[str, object], username: str) -> AccountVerification:
    user = body.get("data")
    if not isinstance(user, dict) or not user:
        raise AccountLookupUnavailable("an answer without a user")
    return AccountVerification("exists", username, name_in(user, "display_name"))


def _valid_username(account: OAuthAccount) -> str | None:
    """None if it is missing or malformed: inside a request it could mean more than a name."""
    if account.username is None:
        return None
    try:
        check_username(account.provider, account.username)
    except AccountRefused:
        return None
    return bare_username(account.username)
