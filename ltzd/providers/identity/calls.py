"""Requests to the identity provider: authenticated, bounded in number, time and size, repeated.

A repeat waits as long as the provider asks, or for a growing pause. If that would pass the caller's
deadline, IdentityUnavailable is raised at once. Bodies hold e-mail addresses, so no body is ever
logged or put into an error.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import msgspec
import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.line_limits import LineLimits
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.answers import error_code_in, requested_wait
from ltzd.providers.outbound.http_client import (
    AsyncCloseable,
    ClientClosed,
    HttpClient,
    HttpResponse,
    MalformedAnswerError,
    RequestFailed,
)
from ltzd.providers.outbound.retries import (
    Backoff,
    RetryPolicy,
    TransientFailure,
    with_retries,
)

# The largest true answer, a user with every account linked, has a few kilobytes.
_MAX_BODY_BYTES = 1 << 20

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class IdentityPolicy:
    """How to reach the provider and how long to try.

    `base_url` includes a prefix where the provider has one (`https://auth.privy.io/api`).
    `timeout_seconds` bounds one operation of the client, with its repeats and its queueing;
    `attempt_seconds` bounds one request, so that a lost one leaves time for another. `issuer` is
    the `iss` of the provider's tokens.

    A user's wallet signs for its user alone, unless it was made with a further signer: `signer_id`
    is ours (the vendor's key quorum) and `signer_key` its P-256 key, PKCS #8 in base64 as the
    vendor hands it out. A wallet that was made without a signer never gets ours.
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
    # Some 20 MB.
    max_cached_users: int = 20_000


class IdentityCalls(AsyncCloseable):
    """Sends at most `max_concurrent` requests at a time. Deadlines are in the event loop's time."""

    def __init__(self, policy: IdentityPolicy) -> None:
        self._policy = policy
        self._base_url = policy.base_url.rstrip("/")
        self._retries = RetryPolicy(policy.max_attempts, policy.first_pause_seconds)
        self._slots = asyncio.Semaphore(policy.max_concurrent)
        self._lines = LineLimits()
        self._http = HttpClient(
            max_body_bytes=_MAX_BODY_BYTES,
            max_connections=policy.max_concurrent,
            headers=_credential_headers(policy),
        )

    async def close(self) -> None:
        await self._http.close()

    @asynccontextmanager
    async def operation(self) -> AsyncIterator[float]:
        """Give the deadline of the block's calls; their failures become IdentityUnavailable."""
        deadline = loop_time() + self._policy.timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                yield deadline
        except TimeoutError as error:
            self._log_unavailable("no answer in time")
            raise IdentityUnavailable("The identity provider did not answer in time") from error
        except TransientFailure as error:
            self._log_unavailable(error.reason)
            raise IdentityUnavailable(error.message) from error
        except MalformedAnswerError as error:
            _log.warning("identity_answer_malformed", reason=str(error))
            raise IdentityUnavailable("The identity provider's answer is malformed") from error

    def _log_unavailable(self, reason: str) -> None:
        """A stranger's bulk request of invented users causes fifty of these lines."""
        left_out = self._lines.take("identity_unavailable")
        if left_out is not None:
            _log.warning("identity_unavailable", reason=reason, left_out=left_out)

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        deadline: float,
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Return the first answer that is not transient; only for requests that may be repeated.

        Raises TransientFailure after the last attempt, or when the next would pass the deadline.
        """
        return await with_retries(
            lambda: self.send_once(method, path, body, headers=headers), self._retries, deadline
        )

    def backoff(self, deadline: float) -> Backoff:
        """For a caller that does more between two attempts than to repeat the request."""
        return Backoff(self._retries, deadline)

    async def send_once(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Send one request. Raises TransientFailure for every failure that a repeat may cure."""
        async with self._slots:
            with telemetry.timed_provider("identity"):
                response = await self._attempt(method, path, body, headers)
                if response.is_transient:
                    raise TransientFailure(
                        "The identity provider is not available",
                        f"status {response.status} {error_code_in(response) or ''}",
                        self._wait_after(response),
                    )
                return response

    def url(self, path: str) -> str:
        return self._base_url + path

    def _wait_after(self, response: HttpResponse) -> float:
        wait = requested_wait(response, time.time())
        if wait is not None:
            return wait
        return self._policy.rate_limit_pause_seconds if response.status == 429 else 0.0

    async def _attempt(
        self, method: str, path: str, body: object, headers: Mapping[str, str] | None
    ) -> HttpResponse:
        data = None if body is None else msgspec.json.encode(body)
        try:
            return await self._http.request(
                method,
                self.url(path),
                data=data,
                headers=headers,
                timeout_seconds=self._policy.attempt_seconds,
            )
        except ClientClosed as error:
            raise IdentityUnavailable("The identity client is closed") from error
        except RequestFailed as error:
            raise TransientFailure(
                "The identity provider cannot be reached", error.reason
            ) from error


def refusal_in(response: HttpResponse) -> IdentityUnavailable:
    """The error for a request that the provider refuses, and would refuse again."""
    _log.warning("identity_call_refused", status=response.status, code=error_code_in(response))
    if response.status in {401, 403}:
        return IdentityUnavailable("The identity provider refuses our credentials")
    return IdentityUnavailable("The identity provider refused the request")


def _credential_headers(policy: IdentityPolicy) -> dict[str, str]:
    return {
        "Authorization": aiohttp.encode_basic_auth(policy.app_id, policy.app_secret),
        "privy-app-id": policy.app_id,
        "Content-Type": "application/json",
    }
