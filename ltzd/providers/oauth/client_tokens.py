"""Tokens that a provider gives to an application itself (OAuth 2, client credentials).

One is used until shortly before it ends; who needs one while it is being made waits for the same.
"""

import asyncio
from typing import Final

from ltzd.concurrency.clock import Clock, loop_time
from ltzd.providers.oauth.answers import AccountLookupUnavailable, Answer, refused, unexpected
from ltzd.providers.oauth.calls import LookupCalls, Question
from ltzd.rules.oauth.accounts import OAuthProvider

_ENDS_EARLY_SECONDS: Final = 60.0
_LONGEST_SECONDS: Final = 86_400.0
_LONGEST_TOKEN: Final = 4_096


class ClientTokens:
    """`question` is the whole request for a token."""

    def __init__(
        self,
        provider: OAuthProvider,
        question: Question,
        calls: LookupCalls,
        clock: Clock = loop_time,
    ) -> None:
        self._clock = clock
        self._provider = provider
        self._question = question
        self._calls = calls
        self._lock = asyncio.Lock()
        self._token: str | None = None
        self._good_until = 0.0

    async def token(self, deadline: float) -> str:
        """Raises AccountLookupUnavailable."""
        async with self._lock:
            now = self._clock()
            if self._token is None or now >= self._good_until:
                answer = await self._calls.ask(self._question, deadline)
                self._token, seconds = self._made(answer)
                self._good_until = now + seconds
            return self._token

    def forget(self, token: str) -> None:
        """The provider refuses it, whatever was said when it was made."""
        if token == self._token:
            self._token = None

    def _made(self, answer: Answer) -> tuple[str, float]:
        if answer.status in {400, 401, 403}:
            raise refused(self._provider, answer)
        if answer.status != 200:
            raise unexpected(answer)
        body = answer.json_object()
        if "error" in body:  # TikTok says so with status 200
            raise refused(self._provider, answer)
        token, seconds = body.get("access_token"), body.get("expires_in")
        if not isinstance(token, str) or not _is_token(token):
            raise AccountLookupUnavailable("an answer without a token")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise AccountLookupUnavailable("a token without its end")
        lasts = min(float(seconds), _LONGEST_SECONDS)
        return token, max(lasts / 2, lasts - _ENDS_EARLY_SECONDS)


def _is_token(text: str) -> bool:
    """Fit for a header."""
    return 0 < len(text) <= _LONGEST_TOKEN and text.isascii() and text.isprintable()
