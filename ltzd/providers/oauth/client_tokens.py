"""Tokens that a provider gives to an application itself (OAuth 2, client credentials).

A token is used until shortly before its end. Callers that need one while it is being requested wait
for the same request.
"""

import asyncio
from dataclasses import replace
from typing import Final

from ltzd.concurrency.clock import loop_time
from ltzd.errors import AccountLookupUnavailable
from ltzd.providers.oauth.answers import refused, required_object, unexpected
from ltzd.providers.oauth.calls import LookupCalls, LookupRequest
from ltzd.providers.outbound.http_client import HttpResponse
from ltzd.rules.oauth.accounts import OAuthProvider

_RENEWAL_SECONDS: Final = 60.0
_MAX_LIFETIME_SECONDS: Final = 86_400.0
_MAX_TOKEN_LENGTH: Final = 4_096


class ClientTokens:
    """`request` is the whole request for a token."""

    def __init__(
        self,
        provider: OAuthProvider,
        request: LookupRequest,
        calls: LookupCalls,
    ) -> None:
        self._provider = provider
        self._request = request
        self._calls = calls
        self._lock = asyncio.Lock()
        self._token: str | None = None
        self._expires_at = 0.0

    async def token(self, deadline: float) -> str:
        """Raises AccountLookupUnavailable."""
        async with self._lock:
            now = loop_time()
            if self._token is None or now >= self._expires_at:
                response = await self._calls.send(self._request, deadline)
                self._token, seconds = self._token_in(response)
                self._expires_at = now + seconds
            return self._token

    def forget(self, token: str) -> None:
        """Drop a token that the provider refuses before its announced end."""
        if token == self._token:
            self._token = None

    async def send(self, request: LookupRequest, deadline: float) -> HttpResponse:
        """Send the request with a token; with a new one if the provider refuses the first.

        Raises AccountLookupUnavailable.
        """
        response = await self._send_with_token(request, deadline)
        if response.status == 401:
            response = await self._send_with_token(request, deadline)
        return response

    async def _send_with_token(self, request: LookupRequest, deadline: float) -> HttpResponse:
        token = await self.token(deadline)
        headers = {**request.headers, "Authorization": f"Bearer {token}"}
        response = await self._calls.send(replace(request, headers=headers), deadline)
        if response.status == 401:
            self.forget(token)
        return response

    def _token_in(self, response: HttpResponse) -> tuple[str, float]:
        """The token and the seconds for which it is used."""
        if response.status in {400, 401, 403}:
            raise refused(self._provider, response)
        if response.status != 200:
            raise unexpected(response)
        body = required_object(response)
        if "error" in body:  # TikTok says so with status 200
            raise refused(self._provider, response)
        token, seconds = body.get("access_token"), body.get("expires_in")
        if not isinstance(token, str) or not _is_token(token):
            raise AccountLookupUnavailable("an answer without a token")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise AccountLookupUnavailable("a token without its end")
        lifetime = min(float(seconds), _MAX_LIFETIME_SECONDS)
        return token, max(lifetime / 2, lifetime - _RENEWAL_SECONDS)


def _is_token(text: str) -> bool:
    """Whether the text may stand in a header."""
    return 0 < len(text) <= _MAX_TOKEN_LENGTH and text.isascii() and text.isprintable()
