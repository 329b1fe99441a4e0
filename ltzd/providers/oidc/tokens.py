"""Checks tokens of an OpenID Connect issuer, anew on every request.

A token is a JWT of the settings' issuer for one of the settings' audiences, signed with one of the
settings' algorithms by a key of the issuer's key set; an id token and an access token (RFC 9068)
serve alike. The header must name its key. No verdict is cached, so a token ends in the second of
its `exp` and together with its key.

Raises Unauthorized, always in the same words, and IdentityUnavailable while it is unknown whether a
key is the issuer's. Neither the token nor its claims reach a log or an error.
"""

import re
import time

import jwt
import msgspec
import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import Clock
from ltzd.errors import IdentityUnavailable
from ltzd.providers.jwks import PublicKey, key_name, verification_keys
from ltzd.providers.key_cache import KeyCache
from ltzd.providers.oidc.claims import Claims, OidcUser, user_in
from ltzd.providers.oidc.discovery import IssuerDocuments
from ltzd.providers.oidc.policy import Algorithm, OidcPolicy
from ltzd.providers.outbound.http_client import AsyncCloseable, MalformedAnswerError
from ltzd.providers.outbound.json_bodies import InvalidJsonError, decode_json
from ltzd.providers.token_checks import (
    MAX_TOKEN_LENGTH,
    decode_header,
    refused,
    verified_payload,
)

# Three parts in base64url without padding; the shortest signature is one of 64 bytes.
_TOKEN = re.compile(r"([A-Za-z0-9_-]{2,1024})\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{86,1400}")
_MAX_KEY_ID_LENGTH = 255
# Logout tokens and security events are signed by the same keys and authorize nothing.
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})

_log = structlog.get_logger(__name__)


class _IdTokenHeader(msgspec.Struct, frozen=True):
    """`crit` and `b64` name extensions that must be understood: a token with one is refused."""

    alg: str
    kid: str
    typ: str = "JWT"
    crit: None = None
    b64: None = None


_header_decoder = msgspec.json.Decoder(_IdTokenHeader)


class IssuerKeyCache(KeyCache):
    def __init__(self, policy: OidcPolicy, documents: IssuerDocuments, clock: Clock) -> None:
        super().__init__(clock)
        self._algorithms: tuple[Algorithm, ...] = policy.algorithms
        self._documents = documents

    async def fetch_keys(self) -> dict[str, PublicKey]:
        try:
            return verification_keys(await self._documents.key_set(), self._algorithms)
        except MalformedAnswerError as error:
            _log.warning("identity_answer_malformed", reason=str(error))
            raise IdentityUnavailable("The token issuer's answer is malformed") from error


class OidcTokens(AsyncCloseable):
    """`wall_clock` returns Unix seconds; `clock` measures how old the keys are."""

    def __init__(
        self,
        policy: OidcPolicy,
        wall_clock: Clock = time.time,
        clock: Clock = time.monotonic,
    ) -> None:
        self._policy = policy
        self._wall_clock = wall_clock
        self._jws = jwt.PyJWS(algorithms=list(policy.algorithms))
        self._documents = IssuerDocuments(policy)
        self._keys = IssuerKeyCache(policy, self._documents, clock)

    async def close(self) -> None:
        await self._keys.close()
        await self._documents.close()

    async def ping(self) -> bool:
        """Return whether the issuer's key set can be read; never raises."""
        try:
            await self._keys.fetch_keys()
        except IdentityUnavailable:
            return False
        return True

    async def user_of(self, token: str) -> OidcUser:
        header = self._header_of(token)
        try:
            key = await self._keys.key(key_name(header.alg, header.kid))
        except IdentityUnavailable:
            telemetry.TOKEN_CHECKS.labels("unavailable").inc()
            raise
        if key is None:
            raise refused("unknown_key")
        claims = self._claims_in(token, key, header.alg)
        user = user_in(claims, self._policy, self._wall_clock())
        telemetry.TOKEN_CHECKS.labels("accepted").inc()
        return user

    def _header_of(self, token: str) -> _IdTokenHeader:
        """The token's own header; nothing is verified yet."""
        parts = _TOKEN.fullmatch(token) if len(token) <= MAX_TOKEN_LENGTH else None
        if parts is None:
            raise refused("malformed")
        header = decode_header(parts[1], _header_decoder)
        if not self._is_accepted(header):
            raise refused("malformed")
        return header

    def _is_accepted(self, header: _IdTokenHeader) -> bool:
        return (
            header.alg in self._policy.algorithms
            and header.typ.lower() in _TYPES
            and 0 < len(header.kid) <= _MAX_KEY_ID_LENGTH
        )

    def _claims_in(self, token: str, key: PublicKey, algorithm: str) -> Claims:
        payload = verified_payload(self._jws, token, key, algorithm)
        try:
            claims = decode_json(payload)
        except InvalidJsonError:
            claims = None
        if not isinstance(claims, dict):
            raise refused("wrong_claims")
        return claims
