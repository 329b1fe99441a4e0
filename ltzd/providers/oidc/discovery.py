"""What an OpenID Connect issuer publishes of itself: its discovery document and its key set.

Read without credentials, redirects or cookies, bounded in time and size. The document must call the
issuer exactly as the settings do, letter by letter: else it is another's, and so are its keys.
"""

import asyncio
import secrets
from urllib.parse import urlsplit

import aiohttp
import structlog

from ltzd import telemetry
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.answers import MalformedAnswerError, Reply, object_in
from ltzd.providers.oidc.policy import OidcPolicy

_WELL_KNOWN = "/.well-known/openid-configuration"
# The largest of real ones has some twenty kilobytes.
_LARGEST_ANSWER_BYTES = 1 << 18
_READ_BYTES = 1 << 16

_jitter = secrets.SystemRandom()
_log = structlog.get_logger(__name__)


def discovery_url(policy: OidcPolicy) -> str:
    return policy.discovery_url or policy.issuer.removesuffix("/") + _WELL_KNOWN


def key_set_url_in(reply: Reply, policy: OidcPolicy) -> str:
    """Where the keys are, in the issuer's discovery document. Raises MalformedAnswerError."""
    document = object_in(reply.body)
    if document.get("issuer") != policy.issuer:
        raise MalformedAnswerError(
            "the discovery document is of another issuer than identity.issuer"
        )
    url = document.get("jwks_uri")
    if not isinstance(url, str) or not _may_be_asked(url, policy):
        raise MalformedAnswerError("the discovery document has no usable jwks_uri")
    return url


def _may_be_asked(url: str, policy: OidcPolicy) -> bool:
    """Nobody on the way may put keys of his own there: https, but for an issuer without it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return bool(host) and parts.scheme in {"https", urlsplit(policy.issuer).scheme}


class IssuerDocuments:
    def __init__(self, policy: OidcPolicy) -> None:
        self._policy = policy
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def key_set(self) -> Reply:
        """Discovered anew each time, since an issuer may move it. Raises MalformedAnswerError, and
        IdentityUnavailable."""
        try:
            async with asyncio.timeout(self._policy.timeout_seconds):
                document = await self._read(discovery_url(self._policy))
                return await self._read(key_set_url_in(document, self._policy))
        except TimeoutError as error:
            _log.warning("identity_unavailable", reason="no answer in time")
            raise IdentityUnavailable("The token issuer did not answer in time") from error

    async def _read(self, url: str) -> Reply:
        for attempts_left in reversed(range(self._policy.max_attempts)):
            try:
                reply = await self._ask(url)
                reason = f"status {reply.status}"
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                reply, reason = None, type(error).__name__
            if reply is not None and reply.is_ok:
                return reply
            if attempts_left == 0 or (reply is not None and not reply.is_passing):
                break
            await asyncio.sleep(self._policy.pause_seconds * _jitter.uniform(0.5, 1.0))
        _log.warning("identity_unavailable", reason=reason)
        raise IdentityUnavailable("The token issuer cannot be asked for its keys")

    async def _ask(self, url: str) -> Reply:
        with telemetry.timed_provider("identity"):
            async with self._opened().get(url, allow_redirects=False) as response:
                return Reply(response.status, response.headers, await _bounded_body(response))

    def _opened(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise IdentityUnavailable("The client of the token issuer is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=2),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._policy.attempt_seconds),
                headers={"Accept": "application/json"},
                trust_env=False,
            )
        return self._session


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_READ_BYTES):
        body += chunk
        if len(body) > _LARGEST_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError("the answer is too long")
    return bytes(body)
