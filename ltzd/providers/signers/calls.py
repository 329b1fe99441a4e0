"""Requests to a signing service: bounded in number and time, and repeated.

A request may be repeated, since a second signature of the same bytes does no harm. Every failure
that lasts is a SignerUnavailable, whose details `signer` and `cause` are fit for a log.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from ltzd import telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.errors import SignerUnavailable
from ltzd.providers.outbound.http_client import (
    AsyncCloseable,
    ClientClosed,
    HttpClient,
    HttpResponse,
    MalformedAnswerError,
    RequestFailed,
)
from ltzd.providers.outbound.retries import RetryPolicy, TransientFailure, with_retries

Answer = TypeVar("Answer")

_MAX_BODY_BYTES = 1 << 20


class SignerCallPolicy(msgspec.Struct, frozen=True):
    """`timeout_seconds` bounds one signature with its queueing and repeats; `attempt_seconds`
    bounds one request."""

    timeout_seconds: float = 8.0
    attempt_seconds: float = 3.0
    max_attempts: int = 6
    first_pause_seconds: float = 0.1
    max_concurrent: int = 64


class SignerCalls(AsyncCloseable):
    """`service` names the signer in metrics and logs."""

    def __init__(
        self, service: str, policy: SignerCallPolicy, tls: ssl.SSLContext | None = None
    ) -> None:
        self._service = service
        self._policy = policy
        self._retries = RetryPolicy(policy.max_attempts, policy.first_pause_seconds)
        self._slots = asyncio.Semaphore(policy.max_concurrent)
        self._http = HttpClient(
            max_body_bytes=_MAX_BODY_BYTES,
            max_connections=policy.max_concurrent,
            tls=tls,
        )

    async def close(self) -> None:
        await self._http.close()

    async def repeat(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        """The first answer of `attempt`. Raises SignerUnavailable."""
        deadline = loop_time() + self._policy.timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                return await with_retries(attempt, self._retries, deadline)
        except TimeoutError as error:
            raise self.unavailable("The signer did not sign in time", "no answer") from error
        except TransientFailure as error:
            raise self.unavailable(error.message, error.reason) from error
        except MalformedAnswerError as error:
            raise self.unavailable("The signer's answer is malformed", str(error)) from error

    async def request(
        self,
        method: str,
        url: str,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """One request; the answer may have any status. Raises TransientFailure."""
        async with self._slots:
            with telemetry.timed_provider(self._service):
                try:
                    return await self._http.request(
                        method,
                        url,
                        data=data,
                        headers=headers,
                        timeout_seconds=self._policy.attempt_seconds,
                    )
                except ClientClosed as error:
                    raise self.unavailable("The signer's client is closed", "closed") from error
                except RequestFailed as error:
                    raise TransientFailure("The signer cannot be reached", error.reason) from error

    def unavailable(self, message: str, cause: str) -> SignerUnavailable:
        return SignerUnavailable(message, signer=self._service, cause=cause)
