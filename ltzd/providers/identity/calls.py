"""Requests to the identity provider: authenticated, bounded in number, time and size, repeated.

A repeat has a growing, jittered pause and obeys the provider's wish to wait; when that would pass
the caller's deadline, the answer is `IdentityUnavailable` at once. Bodies hold e-mail addresses, so
none is ever logged or put into an error.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import msgspec
import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.answers import MalformedAnswerError, Reply, pause_wished, slug_in

# The largest true answer, a user with every account linked, has a few kilobytes.
_LARGEST_ANSWER_BYTES = 1 << 20
_READ_BYTES = 1 << 16

_jitter = secrets.SystemRandom()
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class IdentityPolicy:
    """How to reach the provider and how long to try.

    `base_url` includes a prefix where the provider has one (`https://auth.privy.io/api`).
    `timeout_seconds` bounds one question to the client, its repeats and its queueing included;
    `attempt_seconds` bounds one request, so that a lost one leaves time for another. `issuer` is
    what the provider's tokens name as their `iss`.

    A user's wallet signs for its user alone, unless it was made with a further signer: `signer_id`
    is ours (the vendor's key quorum) and `signer_key` its P-256 key, PKCS #8 in base64 as the
    vendor gives it away. A wallet made without one never gets it from us.
    """

    base_url: str
    app_id: str
    app_secret: str = field(repr=False)
    issuer: str = "privy.io"
    signer_id: str | None = None
    signer_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 4.0
    attempt_seconds: float = 2.0
    max_attempts: int = 4
    first_pause_seconds: float = 0.1
    # The vendor asks for a second before the first repeat of a 429 that names no time.
    rate_limit_pause_seconds: float = 1.0
    max_concurrent: int = 64
    max_waiting: int = 10_000


class TransientIdentityFailure(IdentityUnavailable):
    """This attempt failed and the next may not; `wait_seconds` is the least pause before it.

    `reason` is fit for a log.
    """

    def __init__(self, message: str, reason: str, wait_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.reason = reason
        self.wait_seconds = wait_seconds


class IdentityCalls:
    def __init__(self, policy: IdentityPolicy) -> None:
        self._policy = policy
        self._base = policy.base_url.rstrip("/")
        self._headers = _credentials(policy)
        self._places = asyncio.Semaphore(policy.max_concurrent)
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def question(self) -> AsyncIterator[float]:
        """Gives the deadline of what is asked in it; every failure becomes IdentityUnavailable."""
        deadline = loop_time() + self._policy.timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                yield deadline
        except TimeoutError as error:
            _log.warning("identity_unavailable", reason="no answer in time")
            raise IdentityUnavailable("The identity provider did not answer in time") from error
        except TransientIdentityFailure as error:
            _log.warning("identity_unavailable", reason=error.reason)
            raise IdentityUnavailable(error.message) from error
        except MalformedAnswerError as error:
            _log.warning("identity_answer_malformed", reason=str(error))
            raise IdentityUnavailable("The identity provider's answer makes no sense") from error

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        deadline: float,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """The answer, once it is neither 5xx nor 429; only for requests that may be repeated.

        `deadline` is in the event loop's time.
        """
        attempt = 0
        while True:
            try:
                return await self.ask_once(method, path, body, headers=headers)
            except TransientIdentityFailure as failure:
                attempt += 1
                await self.pause(attempt, failure, deadline)

    async def pause(self, attempt: int, failure: TransientIdentityFailure, deadline: float) -> None:
        """Wait before repeating, or raise `failure` when there is no time or attempt left."""
        growing = self._policy.first_pause_seconds * 2 ** (attempt - 1)
        seconds = max(failure.wait_seconds, growing * _jitter.uniform(0.5, 1.0))
        now = loop_time()
        if attempt >= self._policy.max_attempts or now + seconds >= deadline:
            raise failure
        await asyncio.sleep(seconds)

    async def ask_once(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request. Raises TransientIdentityFailure for whatever a repeat may cure."""
        async with self._places:
            with telemetry.timed_provider("identity"):
                reply = await self._attempt(method, path, body, headers)
                if reply.is_ok or not reply.is_passing:
                    return reply
                raise TransientIdentityFailure(
                    "The identity provider is not available",
                    f"status {reply.status} {slug_in(reply) or ''}",
                    self._wait_after(reply),
                )

    def url(self, path: str) -> str:
        return self._base + path

    def _wait_after(self, reply: Reply) -> float:
        wished = pause_wished(reply, time.time())
        if wished is not None:
            return wished
        return self._policy.rate_limit_pause_seconds if reply.status == 429 else 0.0

    async def _attempt(
        self, method: str, path: str, body: object, headers: Mapping[str, str] | None
    ) -> Reply:
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._opened().request(
                method, self.url(path), data=data, headers=headers, allow_redirects=False
            ) as response:
                return Reply(response.status, response.headers, await _bounded_body(response))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransientIdentityFailure(
                "The identity provider cannot be reached", type(error).__name__
            ) from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise IdentityUnavailable("The identity client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._policy.max_concurrent),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._policy.attempt_seconds),
                headers=self._headers,
                trust_env=False,
            )
        return self._session


def refusal_in(reply: Reply) -> IdentityUnavailable:
    """What to raise for a request that the provider refuses, and will if it is repeated."""
    _log.warning("identity_call_refused", status=reply.status, code=slug_in(reply))
    if reply.status in {401, 403}:
        return IdentityUnavailable("The identity provider refuses our credentials")
    return IdentityUnavailable("The identity provider refused the request")


def _credentials(policy: IdentityPolicy) -> dict[str, str]:
    return {
        "Authorization": aiohttp.encode_basic_auth(policy.app_id, policy.app_secret),
        "privy-app-id": policy.app_id,
        "Content-Type": "application/json",
    }


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_READ_BYTES):
        body += chunk
        if len(body) > _LARGEST_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError("the answer is too long")
    return bytes(body)
