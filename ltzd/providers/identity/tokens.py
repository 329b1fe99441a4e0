"""Who speaks: access and identity tokens of the identity provider, verified anew on every request.

A token is a JWT that one of the provider's keys signed with ES256, for our application. With
`linked_accounts` it is an identity token and names its user's wallets and accounts; with `sid` it
is an access token and does not. No verdict is kept, so a token ends in the second it says and with
its key.

Raises Unauthorized, always in the same words, and IdentityUnavailable if nobody can tell whether a
key is the provider's. Neither the token nor what is in it reaches a log or an error.
"""

import re
import time
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from ltzd import telemetry
from ltzd.concurrency.clock import Clock
from ltzd.errors import IdentityUnavailable, Unauthorized
from ltzd.providers.identity.accounts import accounts_in, emails_in
from ltzd.providers.identity.answers import ethereum_wallets
from ltzd.providers.identity.calls import IdentityCalls, IdentityPolicy
from ltzd.providers.identity.keys import IdentityKeyCache
from ltzd.providers.outbound.bounded_json import InvalidJsonError, decode_json
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.values import Address

MAX_TOKEN_LENGTH = 16 * 1024
CLOCK_SKEW_SECONDS = 5.0
"""How far our clock may be behind the provider's: a token is used in the second it is made.

There is no such allowance for `exp`. The other way round it would only lengthen the life of a
token that may be stolen; its user's program has had a new one for minutes.
"""

# Three parts in base64url without padding, which PyJWT would let pass, and an ES256 signature's
# length: whatever else there is costs us nothing more.
_TOKEN = re.compile(r"([A-Za-z0-9_-]{2,1024})\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{86}")
_ES256 = jwt.PyJWS(algorithms=["ES256"])

_Reason = Literal["malformed", "unknown_key", "bad_signature", "wrong_claims", "expired"]


@dataclass(frozen=True, slots=True)
class TokenUser:
    """`wallets` are those that an identity token names; None for an access token.

    `accounts` are those that an identity token names as verified, and `emails` the addresses, in
    lower case; None where whoever keeps the wallets must be asked for them.
    """

    subject: str
    wallets: tuple[Address, ...] | None
    accounts: tuple[OAuthAccount, ...] = ()
    emails: tuple[str, ...] | None = field(default=None, kw_only=True, repr=False)


class _Header(msgspec.Struct, frozen=True):
    alg: Literal["ES256"]
    typ: Literal["JWT"]
    kid: str


class _Claims(msgspec.Struct, frozen=True):
    """Strict: a boolean or text is no number, a list of audiences is not ours alone."""

    iss: str
    aud: str
    sub: str
    exp: int | float
    iat: int | float
    nbf: int | float = 0
    sid: str | None = None
    linked_accounts: str | None = None


_header_decoder = msgspec.json.Decoder(_Header)
_claims_decoder = msgspec.json.Decoder(_Claims)


class IdentityTokens:
    """`wall_clock` tells Unix seconds; `clock` measures how old the keys are."""

    def __init__(
        self,
        policy: IdentityPolicy,
        wall_clock: Clock = time.time,
        clock: Clock = time.monotonic,
    ) -> None:
        self._policy = policy
        self._wall_clock = wall_clock
        # Connections of its own: keys do not queue behind the look-ups of users.
        self._calls = IdentityCalls(policy)
        self._keys = IdentityKeyCache(policy, self._calls, clock)

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
        await self._calls.close()

    async def user_of(self, token: str) -> TokenUser:
        kid = _key_id_in(token)
        try:
            key = await self._keys.key(kid)
        except IdentityUnavailable:
            telemetry.TOKEN_CHECKS.labels("unavailable").inc()
            raise
        if key is None:
            raise _refused("unknown_key")
        user = self._user_in(_claims_in(token, key))
        telemetry.TOKEN_CHECKS.labels("accepted").inc()
        return user

    def _user_in(self, claims: _Claims) -> TokenUser:
        now = self._wall_clock()
        if claims.iss != self._policy.issuer or claims.aud != self._policy.app_id:
            raise _refused("wrong_claims")
        if now >= claims.exp:
            raise _refused("expired")
        if max(claims.iat, claims.nbf) > now + CLOCK_SKEW_SECONDS:
            raise _refused("wrong_claims")
        if not claims.sub or (claims.linked_accounts is None and not claims.sid):
            raise _refused("wrong_claims")
        rows = _rows_in(claims)
        if rows is None:
            return TokenUser(claims.sub, None)
        return TokenUser(
            claims.sub, ethereum_wallets(rows), accounts_in(rows), emails=emails_in(rows)
        )


def _key_id_in(token: str) -> str:
    """The key that the token says it is signed with; nothing is verified yet."""
    parts = _TOKEN.fullmatch(token) if len(token) <= MAX_TOKEN_LENGTH else None
    if parts is None:
        raise _refused("malformed")
    try:
        kid = _header_decoder.decode(urlsafe_b64decode(parts[1] + "==")).kid
    except (ValueError, RecursionError):
        raise _refused("malformed") from None
    if not kid:
        raise _refused("malformed")
    return kid


def _claims_in(token: str, key: EllipticCurvePublicKey) -> _Claims:
    try:
        payload = _ES256.decode(token, key, algorithms=["ES256"])
    except jwt.InvalidSignatureError:
        raise _refused("bad_signature") from None
    except jwt.InvalidTokenError:
        raise _refused("malformed") from None
    try:
        return _claims_decoder.decode(payload)
    except (ValueError, RecursionError):
        raise _refused("wrong_claims") from None


def _rows_in(claims: _Claims) -> list[object] | None:
    if claims.linked_accounts is None:
        return None
    try:
        rows = decode_json(claims.linked_accounts.encode())
    except InvalidJsonError:
        raise _refused("wrong_claims") from None
    if not isinstance(rows, list):
        raise _refused("wrong_claims")
    return rows


def _refused(reason: _Reason) -> Unauthorized:
    """Raised `from None`: the libraries' errors quote what they were given."""
    telemetry.TOKEN_CHECKS.labels(reason).inc()
    return Unauthorized("Invalid or expired token")
