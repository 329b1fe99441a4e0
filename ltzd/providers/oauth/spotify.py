"""Looks up Spotify's accounts, with a token of the application's own.

Since 2026 an app in development mode gets 403 or 404 for every account, so a 404 means a missing
account only to apps with an extended quota.
"""

from typing import Final
from urllib.parse import quote

import aiohttp

from ltzd.errors import AccountLookupUnavailable
from ltzd.providers.oauth.answers import (
    AccountVerification,
    cannot_check,
    missing,
    name_in,
    nested_object,
    refused,
    refused_or_unexpected,
    required_object,
)
from ltzd.providers.oauth.calls import LookupCalls, LookupRequest
from ltzd.providers.oauth.client_tokens import ClientTokens
from ltzd.providers.oauth.policy import SpotifyAccess
from ltzd.providers.outbound.http_client import HttpResponse
from ltzd.rules.oauth.accounts import OAuthAccount

_GRANT: Final = {"grant_type": "client_credentials"}


class SpotifyLookup:
    def __init__(self, access: SpotifyAccess, calls: LookupCalls) -> None:
        self._access = access
        credentials = aiohttp.encode_basic_auth(access.client_id, access.client_secret)
        headers = {"Authorization": credentials}
        token_request = LookupRequest(access.token_url, headers, "POST", form=_GRANT)
        self._tokens = ClientTokens("spotify", token_request, calls)

    async def verify(self, account: OAuthAccount, deadline: float) -> AccountVerification:
        url = f"{self._access.base_url}/users/{quote(account.user_id, safe='')}"
        response = await self._tokens.send(LookupRequest(url), deadline)
        if response.status == 401:
            raise refused("spotify", response)
        return spotify_verdict(response, account.user_id, self._access.extended_quota)


def spotify_verdict(
    response: HttpResponse, user_id: str, extended_quota: bool
) -> AccountVerification:
    """Spotify has no usernames beside the ids."""
    if response.status == 200:
        return _user(required_object(response), user_id)
    if response.status in {403, 404} and not extended_quota:
        return cannot_check("Spotify does not show our application other people's accounts")
    if response.status == 404 and nested_object(response, "error").get("status") == 404:
        return missing("Spotify knows no user with this id")
    raise refused_or_unexpected("spotify", response)


def _user(user: dict[str, object], user_id: str) -> AccountVerification:
    spotify_id = user.get("id")
    if not isinstance(spotify_id, str) or spotify_id.lower() != user_id.lower():
        raise AccountLookupUnavailable("the answer is about another account")
    if user.get("type") != "user":
        raise AccountLookupUnavailable("the account is no user's")
    if spotify_id != user_id:
        # Another spelling would be another account to us, with another wallet.
        return missing("Spotify writes this id in another letter case")
    return AccountVerification("exists", name=name_in(user, "display_name"))
