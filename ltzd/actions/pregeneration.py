"""Creates the wallet of an OAuth account before its owner logs in (spec 4.5).

The identity provider is asked for the wallet outside any database transaction and always returns
the same one; ltzd's row decides which request was first. A request that dies between the two is
repaired by repeating it. Of all requests for an account, from any brand, exactly one is answered
with `created_new`.

Nothing that a caller claims about an account links it to a person: the user name is compared with
the OAuth provider's, and an e-mail address is passed to the identity provider only.
"""

import math
import time
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
import structlog
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.actions.request_signatures import RequestSignatures
from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.cache.rate_limits import RateLimit, RateLimits, RateLimitStatus
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.errors import (
    AccountRefused,
    BrandUnknown,
    IdentityUnavailable,
    RateLimited,
    Refused,
    SignatureRefused,
    Unavailable,
)
from ltzd.providers.oauth.answers import AccountVerification
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.rules.oauth.ids import (
    TITLES,
    bare_username,
    check_username,
    is_same_username,
    refuse_fakes,
)
from ltzd.rules.request_signatures import NONCE_SECONDS, NONCE_WAS_USED, SignedRequest
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool, session
from ltzd.store.users import pregenerations
from ltzd.store.users.pregenerations import AccountWallet, RecordedPregeneration
from ltzd.values import Address, hex_of

log = structlog.get_logger()

PER_MINUTE = RateLimit("pregenerate_minute", 100, 60)
PER_DAY = RateLimit("pregenerate_day", 10_000, 86_400)
"""The limits of a brand (spec 8). A request that the minute's limit refuses does not count for the
day, which is a day in UTC and counted in the database."""

_MOST_WAITING = 10_000


class PregenerationRequest(msgspec.Struct, frozen=True):
    """A well-formed request; `account` is the caller's claim, `metadata` is stored as it is."""

    brand_id: Address
    account: OAuthAccount
    metadata: Mapping[str, Any] | None = None
    is_signed: bool = False

    @property
    def party(self) -> Hashable:
        """Takes turns with other parties: the brand, or everybody who only names it."""
        return self.brand_id, self.is_signed


class AccountVerifier(Protocol):
    """Looks accounts up at their OAuth providers."""

    async def verify(
        self, account: OAuthAccount, party: Hashable = None
    ) -> AccountVerification: ...


class Pregeneration:
    def __init__(
        self,
        pool: Pool,
        brands: BrandCache,
        identities: IdentityProvider,
        accounts: AccountVerifier,
        limits: RateLimits,
        signatures: RequestSignatures,
        *,
        per_minute: RateLimit = PER_MINUTE,
        per_day: RateLimit = PER_DAY,
    ) -> None:
        self._per_minute = per_minute
        self._per_day = per_day
        self._pool = pool
        self._signatures = signatures
        self._brands = brands
        self._identities = identities
        self._accounts = accounts
        self._limits = limits
        self._flights: SingleFlight[tuple[OAuthAccount, Hashable], AccountWallet] = SingleFlight(
            "pregeneration", _MOST_WAITING, IdentityUnavailable
        )

    async def close(self) -> None:
        """Cancel the requests under way; their callers get Unavailable."""
        await self._flights.close()

    async def admit(
        self, brand_id: Address, signed: SignedRequest | None = None
    ) -> RateLimitStatus:
        """Count a request for the brand; return the brand's window of a minute.

        Signed requests are counted apart from unsigned ones, which anybody may send. Raises
        BrandUnknown and SignatureRefused, for requests that are not counted, RateLimited, and
        DatabaseUnavailable.
        """
        if self._brands.get(brand_id) is None:
            telemetry.PREGENERATIONS.labels("refused").inc()
            raise BrandUnknown("Unknown brand")
        if signed is not None:
            await self._check(signed, brand_id)
        sender = "anybody" if signed is None else "brand"
        window = await self._limits.hit(self._per_minute, hex_of(brand_id), sender)
        if not window.is_within:
            seconds = max(1, math.ceil(window.reset_at - time.time()))
            raise _limited(self._per_minute, seconds, window.reset_at)
        async with session(self._pool) as connection:
            day = await pregenerations.count_today(
                connection, brand_id, self._per_day.max_hits, is_signed=signed is not None
            )
        if not day.is_within:
            raise _limited(self._per_day, day.seconds_left)
        return window

    async def _check(self, signed: SignedRequest, brand_id: Address) -> None:
        """Raises SignatureRefused, also for a used nonce."""
        await self._signatures.check(signed, brand_id)
        # In hex, since window names are not case-sensitive.
        nonce = (hex_of(brand_id), signed.nonce.encode().hex())
        (is_fresh,) = await self._limits.use_once("signed_pregenerations", NONCE_SECONDS, [nonce])
        if not is_fresh:
            raise SignatureRefused(NONCE_WAS_USED)

    async def pregenerate(self, request: PregenerationRequest) -> RecordedPregeneration:
        """Raises AccountRefused, and Unavailable while the same request may succeed later."""
        try:
            recorded = await self._recorded(request)
        except Refused:
            telemetry.PREGENERATIONS.labels("refused").inc()
            raise
        except Unavailable:
            telemetry.PREGENERATIONS.labels("unavailable").inc()
            raise
        telemetry.PREGENERATIONS.labels("created" if recorded.created_new else "found").inc()
        if recorded.created_new:
            log.info(
                "pregeneration.created",
                provider=request.account.provider,
                brand=hex_of(request.brand_id),
            )
        return recorded

    async def _recorded(self, request: PregenerationRequest) -> RecordedPregeneration:
        account = request.account
        if account.username is not None:
            check_username(account.provider, account.username)
        refuse_fakes(account, datetime.now(UTC))
        async with session(self._pool) as connection:
            known = await pregenerations.find(connection, account)
        wallet = known or await self._flights.call(
            (account, request.party), lambda: self._find_wallet(request)
        )
        async with session(self._pool) as connection:
            return await pregenerations.record(
                connection, request.brand_id, account, wallet, request.metadata
            )

    async def _find_wallet(self, request: PregenerationRequest) -> AccountWallet:
        """Return the account's wallet; writes nothing, and returns the same wallet each time."""
        account = request.account
        verified = await self._accounts.verify(account, request.party)
        proven = proven_account(account, verified)
        try:
            user = await self._identities.wallet_of_account(proven, request.party)
        except AccountRefused as refusal:
            raise invalid_credentials(account, _hint_in(account, refusal)) from refusal
        return AccountWallet(user.subject, user.wallet)


def _limited(limit: RateLimit, seconds: int, reset_at: float | None = None) -> RateLimited:
    telemetry.PREGENERATIONS.labels("limited").inc()
    refusal = too_many(limit, seconds)
    refusal.reset_at = reset_at
    return refusal


def proven_account(account: OAuthAccount, verified: AccountVerification) -> OAuthAccount:
    """Replace the caller's claims about the account by its provider's answer.

    Raises AccountRefused, and Unavailable if the provider does not answer, which does not prove
    that the account is missing.
    """
    title, username = TITLES[account.provider], verified.username
    match verified.verdict:
        case "missing":
            hint = verified.reason or f"{title} knows no account with this id"
            raise invalid_credentials(account, hint)
        case "unavailable":
            raise Unavailable(f"{title} does not say whether the account exists")
    if (
        account.username
        and username
        and not is_same_username(account.provider, account.username, username)
    ):
        raise invalid_credentials(account, f"The account at {title} has another username")
    return replace(
        account,
        username=bare_username(username or account.username or "") or None,
        name=verified.name or account.name,
        email=verified.email or account.email,
    )


def invalid_credentials(account: OAuthAccount, hint: str) -> AccountRefused:
    return AccountRefused("Invalid OAuth credentials", hint=hint, provider=account.provider)


def _hint_in(account: OAuthAccount, refusal: AccountRefused) -> str:
    """Return the refusal's hint with the request's field names.

    A `username` is the request's `oauth_username`, and the e-mail address and name of a Google
    account are in its metadata.
    """
    hint = str(refusal.details.get("hint", refusal.message))
    if account.provider == "google" and hint.startswith(("email:", "name:")):
        return "A Google account needs its e-mail address and name: metadata.email and .name"
    return f"oauth_{hint}" if hint.startswith("username:") else hint


def too_many(limit: RateLimit, seconds: int) -> RateLimited:
    unit = "minute" if limit.seconds == PER_MINUTE.seconds else "day"
    return RateLimited(
        f"Rate limit exceeded: a brand may pregenerate {limit.max_hits} wallets a {unit}; "
        f"try again in {seconds} seconds",
        limit=limit.max_hits,
        retryAfterSeconds=seconds,
    )
