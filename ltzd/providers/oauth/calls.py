"""Requests to one OAuth provider: bounded in number, time and size, repeated while that may help.

While a provider asks us to wait, no request is sent to it. Paths and bodies hold credentials and
names, so neither reaches a log or an error.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import msgspec
from yarl import URL

from ltzd import __version__, telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.errors import AccountLookupUnavailable
from ltzd.providers.oauth.answers import is_rate_limited, requested_wait
from ltzd.providers.oauth.policy import AccountLookupPolicy
from ltzd.providers.outbound.http_client import (
    ClientClosed,
    HttpClient,
    HttpResponse,
    RequestFailed,
)
from ltzd.providers.outbound.retries import RetryPolicy, TransientFailure, with_retries
from ltzd.rules.oauth.accounts import OAuthProvider

_MAX_BODY_BYTES = 1 << 18
_HEADERS = {
    "User-Agent": f"ltzd/{__version__}",  # GitHub demands one
    "Accept": "application/json",
}
_MESSAGE = "The OAuth provider gave no usable answer"


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """`url` is encoded already. At most one of `json` and `form` is the body."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    method: Literal["GET", "POST"] = "GET"
    json: object = field(default=None, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)


def lookup_http_client() -> HttpClient:
    """The connections to all OAuth providers."""
    return HttpClient(max_body_bytes=_MAX_BODY_BYTES, headers=_HEADERS)


class LookupCalls:
    """Requests to one provider. Deadlines are in the event loop's time."""

    def __init__(
        self, provider: OAuthProvider, policy: AccountLookupPolicy, http: HttpClient
    ) -> None:
        self._provider = provider
        self._policy = policy
        self._http = http
        self._retries = RetryPolicy(policy.max_attempts, policy.first_pause_seconds)
        self._paused_until = 0.0

    async def send(self, request: LookupRequest, deadline: float) -> HttpResponse:
        """Return the first answer that is neither 5xx nor a rate limit.

        Raises AccountLookupUnavailable.
        """
        try:
            return await with_retries(
                lambda: self._send_once(request, deadline), self._retries, deadline
            )
        except TransientFailure as failure:
            raise AccountLookupUnavailable(failure.reason) from failure

    def pause(self, seconds: float) -> None:
        """Send the provider no request for `seconds`."""
        self._paused_until = max(self._paused_until, loop_time() + seconds)

    async def _send_once(self, request: LookupRequest, deadline: float) -> HttpResponse:
        await self._wait_for_pause(deadline)
        seconds = min(self._policy.attempt_seconds, deadline - loop_time())
        with telemetry.timed_provider(self._provider):
            response = await self._attempt(request, seconds)
            self._refuse_transient(response)
            return response

    async def _wait_for_pause(self, deadline: float) -> None:
        while (now := loop_time()) < self._paused_until:
            if self._paused_until >= deadline:
                raise AccountLookupUnavailable("the provider asks us to wait")
            await asyncio.sleep(self._paused_until - now)

    async def _attempt(self, request: LookupRequest, seconds: float) -> HttpResponse:
        headers = dict(request.headers)
        data: bytes | Mapping[str, str] | None = request.form
        if request.json is not None:
            headers["Content-Type"] = "application/json"
            data = msgspec.json.encode(request.json)
        try:
            return await self._http.request(
                request.method,
                URL(request.url, encoded=True),
                data=data,
                headers=headers,
                timeout_seconds=seconds,
            )
        except ClientClosed as error:
            raise AccountLookupUnavailable(error.reason) from error
        except RequestFailed as error:
            raise TransientFailure(_MESSAGE, error.reason) from error

    def _refuse_transient(self, response: HttpResponse) -> None:
        if is_rate_limited(response):
            wait = requested_wait(response, datetime.now(UTC))
            self.pause(self._policy.rate_limit_pause_seconds if wait is None else wait)
            raise TransientFailure(_MESSAGE, "too many requests")
        if response.status >= 500 or response.status == 408:
            raise TransientFailure(_MESSAGE, f"status {response.status}")
