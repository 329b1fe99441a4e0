"""Who speaks, where an OpenID Connect issuer makes the tokens: verified anew on every request.

A token is a JWT of the settings' issuer for one of the settings' audiences, signed with one of the
settings' algorithms by a key of the issuer's key set; an id token and an access token (RFC 9068)
serve alike. The header must name its key. No verdict is kept, so a token ends in the second it
says and with its key.

Raises Unauthorized, always in the same words, and IdentityUnavailable if nobody can tell whether a
key is the issuer's. Neither the token nor what is in it reaches a log or an error.
"""

import re
import time
from base64 import urlsafe_b64decode
from types import TracebackType
from typing import Self

import jwt
import msgspec
import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import Clock
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.answers import MalformedAnswerError
from ltzd.providers.identity.keys import KeyCache
from ltzd.providers.identity.tokens import MAX_TOKEN_LENGTH
from ltzd.providers.oidc.claims import Claims, OidcUser, refused, user_in
from ltzd.providers.oidc.discovery import IssuerDocuments
from ltzd.providers.oidc.key_sets import PublicKey, issuer_keys_in, place_of
from ltzd.providers.oidc.policy import Algorithm, OidcPolicy
from ltzd.providers.outbound.bounded_json import InvalidJsonError, decode_json

# Three parts in base64url without padding; the shortest signature is one of 64 bytes.
_TOKEN = re.compile(r"([A-Za-z0-9_-]{2,1024})\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{86,1400}")
_LONGEST_KID = 255
# A logout token or a security event is signed by the same keys and is nobody's permission.
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})

_log = structlog.get_logger(__name__)


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str
    typ: str = "JWT"
    crit: None = None
    """Extensions that must be understood, such as b64; we understand none."""
    b64: None = None


_header_decoder = msgspec.json.Decoder(_Header)


class IssuerKeyCache(KeyCache[PublicKey]):
    """By algorithm and key id; see `place_of`."""

    def __init__(self, policy: OidcPolicy, documents: IssuerDocuments, clock: Clock) -> None:
        super().__init__(clock)
        self._algorithms: tuple[Algorithm, ...] = policy.algorithms
        self._documents = documents

    async def told(self) -> dict[str, PublicKey]:
        try:
            return issuer_keys_in(await self._documents.key_set(), self._algorithms)
        except MalformedAnswerError as error:
            _log.warning("identity_answer_malformed", reason=str(error))
            raise IdentityUnavailable("The token issuer's answer makes no sense") from error


class OidcTokens:
    """`wall_clock` tells Unix seconds; `clock` measures how old the keys are."""

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._keys.close()
        await self._documents.close()

    async def user_of(self, token: str) -> OidcUser:
        header = self._header_of(token)
        try:
            key = await self._keys.key(place_of(header.alg, header.kid))
        except IdentityUnavailable:
            telemetry.TOKEN_CHECKS.labels("unavailable").inc()
            raise
        if key is None:
            raise refused("unknown_key")
        user = user_in(self._claims_in(token, key, header.alg), self._policy, self._wall_clock())
        telemetry.TOKEN_CHECKS.labels("accepted").inc()
        return user

    def _header_of(self, token: str) -> _Header:
        """What the token says of itself; nothing is verified yet."""
        parts = _TOKEN.fullmatch(token) if len(token) <= MAX_TOKEN_LENGTH else None
        if parts is None:
            raise refused("malformed")
        try:
            padding = "=" * (-len(parts[1]) % 4)
            header = _header_decoder.decode(urlsafe_b64decode(parts[1] + padding))
        except (ValueError, RecursionError):
            raise refused("malformed") from None
        if not self._is_fit(header):
            raise refused("malformed")
        return header

    def _is_fit(self, header: _Header) -> bool:
        return (
            header.alg in self._policy.algorithms
            and header.typ.lower() in _TYPES
            and 0 < len(header.kid) <= _LONGEST_KID
        )

    def _claims_in(self, token: str, key: PublicKey, algorithm: str) -> Claims:
        try:
            payload = self._jws.decode(token, key, algorithms=[algorithm])
        except jwt.InvalidSignatureError:
            raise refused("bad_signature") from None
        except jwt.InvalidTokenError:
            raise refused("malformed") from None
        try:
            claims = decode_json(payload)
        except InvalidJsonError:
            claims = None
        if not isinstance(claims, dict):
            raise refused("wrong_claims")
        return claims
