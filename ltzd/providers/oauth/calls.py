"""Requests to one OAuth provider: bounded in number, time and size, repeated while that may help.

When a provider asks to wait, nobody asks it anything until then. Paths and bodies hold credentials
and names, so neither reaches a log or an error.
"""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import aiohttp
import msgspec
from yarl import URL

from ltzd import __version__, telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.providers.oauth.answers import AccountLookupUnavailable, Answer, TransientLookupFailure
from ltzd.providers.oauth.policy import AccountLookupPolicy
from ltzd.rules.oauth.accounts import OAuthProvider

_LARGEST_ANSWER_BYTES = 1 << 18
_READ_BYTES = 1 << 14
_HEADERS = {
    "User-Agent": f"ltzd/{__version__}",  # GitHub demands one
    "Accept": "application/json",
}

_jitter = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class Question:
    """`url` is encoded already; `json` and `form` are bodies."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    method: Literal["GET", "POST"] = "GET"
    json: object = field(default=None, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)


class LookupSession:
    """The connections of all providers."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def exchange(self, question: Question, seconds: float) -> Answer:
        headers = {**_HEADERS, **question.headers}
        data = question.form
        body: bytes | None = None
        if question.json is not None:
            headers["Content-Type"] = "application/json"
            body = msgspec.json.encode(question.json)
        async with self._opened().request(
            question.method,
            URL(question.url, encoded=True),
            data=data if body is None else body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=seconds),
            allow_redirects=False,
        ) as response:
            return Answer(response.status, response.headers, await _bounded_body(response))

    def _opened(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise AccountLookupUnavailable("the client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            )
        return self._session


class LookupCalls:
    """To one provider. Deadlines are in the event loop's time."""

    def __init__(
        self, provider: OAuthProvider, policy: AccountLookupPolicy, session: LookupSession
    ) -> None:
        self._provider = provider
        self._policy = policy
        self._session = session
        self._places = asyncio.Semaphore(policy.max_concurrent)
        self._still_until = 0.0

    async def ask(self, question: Question, deadline: float) -> Answer:
        """The answer, once it is neither 5xx nor a limit. Raises AccountLookupUnavailable."""
        attempt = 0
        while True:
            try:
                return await self._once(question, deadline)
            except TransientLookupFailure as failure:
                attempt += 1
                await self._pause(attempt, failure, deadline)

    async def _once(self, question: Question, deadline: float) -> Answer:
        async with self._places:
            await self._until_allowed(deadline)
            seconds = min(self._policy.attempt_seconds, deadline - loop_time())
            with telemetry.timed_provider(self._provider):
                answer = await self._attempt(question, seconds)
                self._refuse_passing(answer)
                return answer

    async def _until_allowed(self, deadline: float) -> None:
        """In our place among the few, so that not all of them ask at once when it is over."""
        while (now := loop_time()) < self._still_until:
            if self._still_until >= deadline:
                raise AccountLookupUnavailable("the provider asks us to wait")
            await asyncio.sleep(self._still_until - now)

    async def _attempt(self, question: Question, seconds: float) -> Answer:
        try:
            return await self._session.exchange(question, seconds)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransientLookupFailure(type(error).__name__) from error

    def keep_still(self, seconds: float) -> None:
        """The provider wants no questions for so long."""
        self._still_until = max(self._still_until, loop_time() + seconds)

    def _refuse_passing(self, answer: Answer) -> None:
        if answer.is_limiting:
            wished = answer.wait_wished(datetime.now(UTC))
            self.keep_still(self._policy.rate_limit_pause_seconds if wished is None else wished)
            raise TransientLookupFailure("too many requests")
        if answer.status >= 500 or answer.status == 408:
            raise TransientLookupFailure(f"status {answer.status}")

    async def _pause(self, attempt: int, failure: TransientLookupFailure, deadline: float) -> None:
        growing = self._policy.first_pause_seconds * 2 ** (attempt - 1)
        seconds = growing * _jitter.uniform(0.5, 1.0)
        if attempt >= self._policy.max_attempts or loop_time() + seconds >= deadline:
            raise failure
        await asyncio.sleep(seconds)


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_READ_BYTES):
        body += chunk
        if len(body) > _LARGEST_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError("the answer is too long")
    return bytes(body)
