"""Checks users' access and identity tokens of the identity provider, anew on every request.

A token is a JWT that one of the provider's keys signed with ES256, for our application. With
`linked_accounts` it is an identity token and names its user's wallets and accounts; with `sid` it
is an access token and does not. Times, application and key are checked on every request, so a token
ends in the second of its `exp` and together with its key. Only the signature is not computed anew
for the same token and key, nor its text parsed again, since the results cannot change.

Raises Unauthorized, always in the same words, and IdentityUnavailable while it is unknown whether a
key is the provider's. Neither the token nor its claims reach a log or an error.
"""

import hashlib
import re
import time
from dataclasses import dataclass, field
from typing import Literal

import jwt
import msgspec

from ltzd import telemetry
from ltzd.concurrency.clock import Clock
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.accounts import accounts_in, emails_in
from ltzd.providers.identity.answers import ethereum_wallets
from ltzd.providers.identity.calls import IdentityCalls, IdentityPolicy
from ltzd.providers.identity.keys import IdentityKeyCache
from ltzd.providers.jwks import PublicKey, key_name
from ltzd.providers.outbound.http_client import AsyncCloseable
from ltzd.providers.outbound.json_bodies import InvalidJsonError, decode_json
from ltzd.providers.token_checks import (
    CLOCK_SKEW_SECONDS,
    MAX_TOKEN_LENGTH,
    decode_header,
    refused,
    verified_payload,
)
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.values import Address

# Three parts in base64url without padding (PyJWT would accept padding), the last of an ES256
# signature's length: any other text is refused before it costs more.
_TOKEN = re.compile(r"([A-Za-z0-9_-]{2,1024})\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{86}")
_ES256 = jwt.PyJWS(algorithms=["ES256"])
_TOKENS_KEPT = 20_000
"""Tokens of as many users as `IdentityPolicy` keeps by default: 30 MB as a rule."""
_CHARACTERS_KEPT = 2_000 * MAX_TOKEN_LENGTH
"""The length of all of them. Tokens of the greatest length take up to 64 MB."""


@dataclass(frozen=True, slots=True)
class TokenUser:
    """`wallets` is what an identity token lists; it is None for an access token.

    `accounts` are those that an identity token names as verified. `emails` are its verified
    addresses, in lower case, or None if the keeper of the wallets must be asked for them.
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
_ACCEPTED = telemetry.TOKEN_CHECKS.labels("accepted")


class _VerifiedToken(msgspec.Struct):
    """The contents of a token whose signature `key` has made; `kid` is the id of this key.

    `length` is that of the token's text. `user` is None until the token's claims have once been
    accepted.
    """

    kid: str
    key: PublicKey
    length: int
    claims: _Claims
    user: TokenUser | None = None


class _VerifiedTokens:
    """The newest tokens whose signature was verified, by their digests; no token's text.

    They are at most `most`, and together at most `most_characters` long. A key that the provider
    fetches anew is another object, so a token's signature is verified again after each change of
    the key set.
    """

    def __init__(self, most: int, most_characters: int) -> None:
        self._most = most
        self._most_characters = most_characters
        self._tokens: dict[bytes, _VerifiedToken] = {}
        self._characters = 0

    def find(self, digest: bytes) -> _VerifiedToken | None:
        return self._tokens.get(digest)

    def keep(self, digest: bytes, token: _VerifiedToken) -> None:
        """Make it the newest one."""
        if self._tokens.pop(digest, None) is None:
            self._characters += token.length
        self._tokens[digest] = token
        while len(self._tokens) > self._most or self._characters > self._most_characters:
            oldest = self._tokens.pop(next(iter(self._tokens)))
            self._characters -= oldest.length


class IdentityTokens(AsyncCloseable):
    """`wall_clock` returns Unix seconds; `clock` measures how old the keys are."""

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
        self._verified = _VerifiedTokens(_TOKENS_KEPT, _CHARACTERS_KEPT)

    async def close(self) -> None:
        await self._keys.close()
        await self._calls.close()

    async def ping(self) -> bool:
        """Return True: the client for users and wallets pings the same service."""
        return True

    async def user_of(self, token: str) -> TokenUser:
        digest = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        known = self._verified.find(digest)
        kid = _key_id_in(token) if known is None else known.kid
        try:
            key = await self._keys.key(key_name("ES256", kid))
        except IdentityUnavailable:
            telemetry.TOKEN_CHECKS.labels("unavailable").inc()
            raise
        if key is None:
            raise refused("unknown_key")
        if known is None or known.key is not key:
            known = _VerifiedToken(kid, key, len(token), _claims_in(token, key))
        self._verified.keep(digest, known)
        self._check_claims(known.claims)
        if known.user is None:
            known.user = _user_in(known.claims)
        _ACCEPTED.inc()
        return known.user

    def _check_claims(self, claims: _Claims) -> None:
        """Raises Unauthorized."""
        now = self._wall_clock()
        if claims.iss != self._policy.issuer or claims.aud != self._policy.app_id:
            raise refused("wrong_claims")
        if now >= claims.exp:
            raise refused("expired")
        if max(claims.iat, claims.nbf) > now + CLOCK_SKEW_SECONDS:
            raise refused("wrong_claims")
        if not (claims.sub and claims.sub.isprintable()):  # PostgreSQL's text has no NUL
            raise refused("wrong_claims")
        if claims.linked_accounts is None and not claims.sid:
            raise refused("wrong_claims")


def _key_id_in(token: str) -> str:
    """The id of the key that the token names; nothing is verified yet."""
    parts = _TOKEN.fullmatch(token) if len(token) <= MAX_TOKEN_LENGTH else None
    if parts is None:
        raise refused("malformed")
    kid = decode_header(parts[1], _header_decoder).kid
    if not kid:
        raise refused("malformed")
    return kid


def _claims_in(token: str, key: PublicKey) -> _Claims:
    payload = verified_payload(_ES256, token, key, "ES256")
    try:
        return _claims_decoder.decode(payload)
    except (ValueError, RecursionError):
        raise refused("wrong_claims") from None


def _user_in(claims: _Claims) -> TokenUser:
    """Raises Unauthorized."""
    rows = _rows_in(claims)
    if rows is None:
        return TokenUser(claims.sub, None)
    return TokenUser(claims.sub, ethereum_wallets(rows), accounts_in(rows), emails=emails_in(rows))


def _rows_in(claims: _Claims) -> list[object] | None:
    if claims.linked_accounts is None:
        return None
    try:
        rows = decode_json(claims.linked_accounts.encode())
    except InvalidJsonError:
        raise refused("wrong_claims") from None
    if not isinstance(rows, list):
        raise refused("wrong_claims")
    return rows
