"""Reads an OpenID Connect issuer's discovery document and its key set.

Both are read without credentials, redirects or cookies, bounded in time and size. The document must
name the issuer exactly as the settings do, letter by letter: else it is another issuer's, and so
are its keys.
"""

import asyncio
from urllib.parse import urlsplit

import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.errors import IdentityUnavailable
from ltzd.providers.oidc.policy import OidcPolicy
from ltzd.providers.outbound.http_client import (
    AsyncCloseable,
    ClientClosed,
    HttpClient,
    HttpResponse,
    MalformedAnswerError,
    RequestFailed,
    object_in,
)
from ltzd.providers.outbound.retries import RetryPolicy, TransientFailure, with_retries

_WELL_KNOWN = "/.well-known/openid-configuration"
# The largest of real documents has some twenty kilobytes.
_MAX_BODY_BYTES = 1 << 18
_MESSAGE = "The token issuer's keys cannot be read"

_log = structlog.get_logger(__name__)


def discovery_url(policy: OidcPolicy) -> str:
    return policy.discovery_url or policy.issuer.removesuffix("/") + _WELL_KNOWN


def key_set_url_in(response: HttpResponse, policy: OidcPolicy) -> str:
    """Return the URL of the keys from the issuer's discovery document.

    Raises MalformedAnswerError.
    """
    document = object_in(response)
    if document.get("issuer") != policy.issuer:
        raise MalformedAnswerError(
            "the discovery document is of another issuer than identity.issuer"
        )
    url = document.get("jwks_uri")
    if not isinstance(url, str) or not _is_allowed(url, policy):
        raise MalformedAnswerError("the discovery document has no usable jwks_uri")
    return url


def _is_allowed(url: str, policy: OidcPolicy) -> bool:
    """Only https, so that nobody on the way can replace the keys; http if the issuer has it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return bool(host) and parts.scheme in {"https", urlsplit(policy.issuer).scheme}


class IssuerDocuments(AsyncCloseable):
    def __init__(self, policy: OidcPolicy) -> None:
        self._policy = policy
        self._retries = RetryPolicy(policy.max_attempts, policy.pause_seconds)
        self._http = HttpClient(
            max_body_bytes=_MAX_BODY_BYTES,
            max_connections=2,
            headers={"Accept": "application/json"},
        )

    async def close(self) -> None:
        await self._http.close()

    async def key_set(self) -> HttpResponse:
        """Read the discovery document anew each time, since an issuer may move its keys.

        Raises MalformedAnswerError and IdentityUnavailable.
        """
        deadline = loop_time() + self._policy.timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                document = await self._read(discovery_url(self._policy), deadline)
                return await self._read(key_set_url_in(document, self._policy), deadline)
        except TimeoutError as error:
            _log.warning("identity_unavailable", reason="no answer in time")
            raise IdentityUnavailable("The token issuer did not answer in time") from error
        except TransientFailure as error:
            _log.warning("identity_unavailable", reason=error.reason)
            raise IdentityUnavailable(error.message) from error

    async def _read(self, url: str, deadline: float) -> HttpResponse:
        response = await with_retries(lambda: self._attempt(url), self._retries, deadline)
        if response.is_success:
            return response
        _log.warning("identity_unavailable", reason=f"status {response.status}")
        raise IdentityUnavailable(_MESSAGE)

    async def _attempt(self, url: str) -> HttpResponse:
        try:
            with telemetry.timed_provider("identity"):
                response = await self._http.request(
                    "GET", url, timeout_seconds=self._policy.attempt_seconds
                )
        except ClientClosed as error:
            raise IdentityUnavailable("The client of the token issuer is closed") from error
        except RequestFailed as error:
            raise TransientFailure(_MESSAGE, error.reason) from error
        if response.is_transient:
            raise TransientFailure(_MESSAGE, f"status {response.status}")
        return response
