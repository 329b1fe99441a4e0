"""Spotify's accounts: asked with a token of the application's own.

Apps in development mode lost this question in 2026 and hear 403 or 404 of everybody; what a 404
means is known of apps with an extended quota only.
"""

from typing import Final
from urllib.parse import quote

import aiohttp

from ltzd.providers.oauth.answers import (
    AccountLookupUnavailable,
    AccountVerification,
    Answer,
    cannot_check,
    missing,
    name_in,
    refused,
    refused_or_unexpected,
)
from ltzd.providers.oauth.calls import LookupCalls, Question
from ltzd.providers.oauth.client_tokens import ClientTokens
from ltzd.providers.oauth.policy import SpotifyAccess
from ltzd.rules.oauth.accounts import OAuthAccount

_GRANT: Final = {"grant_type": "client_credentials"}


class SpotifyLookup:
    def __init__(self, access: SpotifyAccess, calls: LookupCalls) -> None:
        self._access = access
        self._calls = calls
        pair = aiohttp.encode_basic_auth(access.client_id, access.client_secret)
        asking = Question(access.token_url, {"Authorization": pair}, "POST", form=_GRANT)
        self._tokens = ClientTokens("spotify", asking, calls)

    async def verify(self, account: OAuthAccount, deadline: float) -> AccountVerification:
        answer = await self._asked(account.user_id, deadline)
        if answer.status == 401:  # the token ended early: once more, with another
            answer = await self._asked(account.user_id, deadline)
        if answer.status == 401:
            raise refused("spotify", answer)
        return spotify_verdict(answer, account.user_id, self._access.extended_quota)

    async def _asked(self, user_id: str, deadline: float) -> Answer:
        token = await self._tokens.token(deadline)
        url = f"{self._access.base_url}/users/{quote(user_id, safe='')}"
        answer = await self._calls.ask(
            Question(url, {"Authorization": f"Bearer {token}"}), deadline
        )
        if answer.status == 401:
            self._tokens.forget(token)
        return answer


def spotify_verdict(answer: Answer, user_id: str, extended_quota: bool) -> AccountVerification:
    """There are no usernames beside the ids."""
    if answer.status == 200:
        return _user(answer.json_object(), user_id)
    if answer.status in {403, 404} and not extended_quota:
        return cannot_check("Spotify does not tell our application of other people's accounts")
    if answer.status == 404 and answer.part("error").get("status") == 404:
        return missing("Spotify knows no user with this id")
    raise refused_or_unexpected("spotify", answer)


def _user(user: dict[str, object], user_id: str) -> AccountVerification:
    found = user.get("id")
    if not isinstance(found, str) or found.lower() != user_id.lower():
        raise AccountLookupUnavailable("the account is not the one asked for")
    if user.get("type") != "user":
        raise AccountLookupUnavailable("the account is no user's")
    if found != user_id:
        # Another spelling would be another account to us, with another wallet.
        return missing("Spotify writes this id in another letter case")
    return AccountVerification("exists", name=name_in(user, "display_name"))
