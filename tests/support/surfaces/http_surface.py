"""The surfaces behind real HTTP, over fakes that behave like the actions."""

import asyncio
import hashlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import aiohttp
from msgspec import structs
from msgspec.structs import replace

from ltzd.actions.event_handler.batch_decision import RecordedEvent
from ltzd.actions.event_handler.record import EventRequest, EventStatus
from ltzd.actions.payments import CheckoutRequest, MintedPayment
from ltzd.actions.perk_charges import IndexedHeight, RedeemedCharges, RedeemRequest, SignedCaller
from ltzd.actions.pregeneration import PER_MINUTE, PregenerationRequest, too_many
from ltzd.actions.relayer.relayer import BegunRelay
from ltzd.actions.site_plugin.check_ins import CheckInResult
from ltzd.actions.site_plugin.leaderboards import Leaderboard, LeaderboardEntry
from ltzd.actions.site_plugin.links import LinkCode, LinkedWallet
from ltzd.actions.site_plugin.members import AuthenticatedMember
from ltzd.actions.site_plugin.redemptions import MemberFunds, PerkOffer, RedeemedPerk
from ltzd.cache.rate_limits import RateLimits, RateLimitStatus
from ltzd.concurrency.futures import done_future
from ltzd.errors import (
    BrandUnknown,
    DuplicateEvent,
    IdempotencyKeyReused,
    LinkRefused,
    MilestoneRefused,
    NotFound,
    NotLoggedIn,
    PaymentRefused,
    RateLimited,
    RedemptionRefused,
    Refused,
    SignatureRefused,
    SiteUnknown,
    Unauthorized,
    ValidationFailed,
)
from ltzd.http.admission.gate import AdmissionGate
from ltzd.http.app import build_app
from ltzd.http.sanic_app import App
from ltzd.http.server import serve
from ltzd.http.services import Health, HttpPolicy, Services, SiteServices
from ltzd.providers.checkouts import CheckoutPage
from ltzd.providers.host_sites import HostCredentials
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules import perk_charges
from ltzd.rules.brands.configuration import Brand, EventRule, Perk
from ltzd.rules.payments.sessions import Payment, not_found
from ltzd.rules.perk_charges import SERIAL_BITS, Token
from ltzd.rules.relayer.calls import RelayProgress, RelayRequest, RelayStatus, RelayWindow
from ltzd.rules.relayer.limits import RELAYS_AN_HOUR, WINDOW, RelayUsage
from ltzd.rules.request_signatures import SignedRequest, check_form, is_signed_with
from ltzd.rules.site_plugin.leaderboards import Metric, Period
from ltzd.rules.site_plugin.links import CODE_LIFE, LINK_LIFE
from ltzd.rules.site_plugin.redemptions import check_cost
from ltzd.rules.site_plugin.spending import Allowance
from ltzd.rules.site_plugin.streaks import Milestone, StreakSummary
from ltzd.store.indexer.tokens import TokenPage
from ltzd.store.perk_charges import StoredRedemption
from ltzd.store.site_plugin.links import Link
from ltzd.store.site_plugin.members import Member
from ltzd.store.site_plugin.redemptions import SiteRedemption
from ltzd.store.site_plugin.spending import ActiveLink
from ltzd.store.users.pregenerations import AccountWallet, RecordedPregeneration
from ltzd.values import LTZ, Address, Hash32, address_of
from tests.support.surfaces.openapi import only_declared_errors

BRAND_ID = "0x" + "ab" * 20
WALLET = Address(bytes.fromhex("5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"))
CHECKSUMMED_WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
MINT = Hash32(b"\x22" * 32)
OPERATOR = Address(bytes.fromhex("fb6916095ca1df60bb79ce92ce3ea74c37c5d359"))
TOKEN = "header.payload.signature"
OTHER_TOKEN = "header.other.signature"
SECURITY_KEY = "ltzsk_" + "1" * 40
API_KEY = "ltzak_" + "2" * 40
COLLECTION = 7
PERK = (COLLECTION << SERIAL_BITS) + 1
"""The first token of COLLECTION."""


@dataclass
class FakeEvents:
    """Records every event once. Refuses duplicates, and raises `refusal` if it is set."""

    requests: list[EventRequest] = field(default_factory=list)
    events: dict[tuple[Address, str, str], UUID] = field(default_factory=dict)
    refusal: Exception | None = None
    hash: Hash32 | None = MINT
    ltz: int = 100
    gate: asyncio.Event | None = None
    brand: Brand = field(
        default_factory=lambda: Brand.model_validate(
            {"id": BRAND_ID, "name": "Demo", "domains": ("shop.example",)}
        )
    )

    async def record(self, request: EventRequest) -> RecordedEvent:
        self.requests.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        key = (request.brand_id, request.event_type, request.email.lower())
        if key in self.events:
            raise DuplicateEvent("Duplicate event", existingEventId=str(self.events[key]))
        self.events[key] = uuid4()
        status = "final" if self.ltz == 0 else "queued" if self.hash is None else "published"
        return RecordedEvent(
            event_id=self.events[key],
            event_type=request.event_type,
            ltz=self.ltz,
            wallet=WALLET,
            wallet_created=True,
            transaction_hash=None if self.ltz == 0 else self.hash,
            status=status,
        )

    async def record_all(
        self, requests: Sequence[EventRequest | Refused]
    ) -> list[RecordedEvent | BaseException]:
        return [await self._outcome(request) for request in requests]

    async def _outcome(self, request: EventRequest | Refused) -> RecordedEvent | BaseException:
        if isinstance(request, Refused):
            return request
        try:
            return await self.record(request)
        except Exception as error:  # noqa: BLE001 - as the action answers
            return error

    async def find(self, event_id: UUID) -> EventStatus:
        for (_, event_type, _), known in self.events.items():
            if known == event_id:
                return EventStatus(
                    event_id=event_id,
                    event_type=event_type,
                    status="minted",
                    ltz=self.ltz,
                    wallet=WALLET,
                    transaction_hash=self.hash,
                    block_number=7,
                    created_at=datetime(2026, 11, 20, 12, 0, 0, 5_000, UTC),
                )
        raise NotFound("Event not found")

    def configuration(self, brand_id: Address) -> list[EventRule]:
        if brand_id != address_of(BRAND_ID):
            raise BrandUnknown("Unknown brand")
        return list(self.brand.configured_events())


@dataclass
class FakeRelays:
    """Relays a user's calls, 35 times each. Raises `refusal` if it is set.

    `calls` has the names of the called methods, in order.
    """

    users: dict[str, TokenUser] = field(
        default_factory=lambda: {
            TOKEN: TokenUser("user", (WALLET,)),
            OTHER_TOKEN: TokenUser("other", ()),
        }
    )
    calls: list[str] = field(default_factory=list)
    requests: list[RelayRequest] = field(default_factory=list)
    sent: dict[Hash32, tuple[Address, RelayProgress]] = field(default_factory=dict)
    keys: dict[tuple[Address, str], tuple[bytes, Hash32]] = field(default_factory=dict)
    provider: Exception | None = None
    refusal: Exception | None = None
    status: RelayStatus = RelayStatus.CONFIRMED
    reset_at: float = field(default_factory=lambda: time.time() + 3_600)

    async def user_of(self, token: str) -> TokenUser:
        self.calls.append("user_of")
        if self.provider is not None:
            raise self.provider
        if token not in self.users:
            raise Unauthorized("Invalid or expired token")
        return self.users[token]

    async def begin(self, user: TokenUser, request: RelayRequest) -> BegunRelay:
        self.calls.append("begin")
        if request.user not in (user.wallets or ()):
            raise ValidationFailed("userAddress is not a wallet of the token's user")
        return BegunRelay(self._usage(request.user), done_future(None))

    def _usage(self, user: Address) -> RelayUsage:
        used = sum(owner == user for owner, _ in self.sent.values())
        begun = datetime.fromtimestamp(self.reset_at, UTC) - WINDOW
        return RelayUsage(begun, begun, used, None, False, None, ())

    def window(self, user: Address) -> RelayWindow:
        return self._usage(user).window()

    async def submit(
        self, _caller: TokenUser, request: RelayRequest, _begun: BegunRelay
    ) -> tuple[RelayProgress, RelayWindow]:
        self.calls.append("submit")
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        user = request.user
        slot = (user, request.idempotency_key or f"none {len(self.sent)}")
        if slot in self.keys:
            return self._replay(*self.keys[slot], request)
        if not self.window(user).remaining:
            raise RateLimited(
                "Too many transactions",
                reset_at=self.reset_at,
                limit=RELAYS_AN_HOUR,
                retryAfterSeconds=60,
            )
        at, relay = self._sent(request)
        self.keys[slot] = (request.fingerprint, at)
        return relay, self.window(user)

    def _replay(
        self, known: bytes, at: Hash32, request: RelayRequest
    ) -> tuple[RelayProgress, RelayWindow]:
        if known != request.fingerprint:
            raise IdempotencyKeyReused("This idempotency key was used with another request")
        return self.sent[at][1], self.window(request.user)

    def _sent(self, request: RelayRequest) -> tuple[Hash32, RelayProgress]:
        id_ = len(self.sent)
        at = Hash32(hashlib.sha256(id_.to_bytes(2, "big")).digest())
        relay = RelayProgress(
            id_, request.user, request.to, request.data, RelayStatus.PENDING, at, OPERATOR
        )
        if self.status is not RelayStatus.PENDING:
            relay = mined(relay, self.status)
        self.sent[at] = (request.user, relay)
        return at, relay

    def becomes(self, status: RelayStatus, reason: str | None = None) -> None:
        """Every relay has this status now."""
        for at, (user, relayed) in self.sent.items():
            self.sent[at] = (user, structs.replace(mined(relayed, status), reason=reason))

    async def find(
        self, user: TokenUser, transaction_hash: Hash32
    ) -> tuple[RelayProgress, RelayWindow]:
        self.calls.append("find")
        if self.refusal is not None:
            raise self.refusal
        owner, relayed = self.sent.get(transaction_hash, (None, None))
        if owner is None or relayed is None or owner not in (user.wallets or ()):
            raise NotFound("Relay not found")
        return relayed, self.window(owner)


def mined(relayed: RelayProgress, status: RelayStatus) -> RelayProgress:
    return structs.replace(
        relayed, status=status, block_number=7, gas_used=183_402, effective_gas_price=10**9
    )


@dataclass
class FakePerkCharges:
    """Redeems the charges that its tokens have left. Raises `refusal` if it is set.

    Signatures are verified with `keys`, or by `check` as RequestSignatures does. `calls` has the
    names of the called methods, in order.
    """

    keys: dict[Address, list[str]] = field(
        default_factory=lambda: {address_of(BRAND_ID): [SECURITY_KEY]}
    )
    check: Callable[[SignedRequest, Address], Awaitable[None]] | None = None
    owners: dict[int, Address] = field(
        default_factory=lambda: {COLLECTION: address_of(BRAND_ID), 8: OPERATOR}
    )
    tokens: dict[int, Token] = field(default_factory=lambda: {PERK: a_perk()})
    calls: list[str] = field(default_factory=list)
    requests: list[RedeemRequest] = field(default_factory=list)
    nonces: set[tuple[Address, str]] = field(default_factory=set)
    by_key: dict[tuple[Address, str], StoredRedemption] = field(default_factory=dict)
    refusal: Exception | None = None
    is_mining: bool = True
    as_of: IndexedHeight = field(default_factory=lambda: IndexedHeight(1_000, 900))

    async def brand_of(self, signed: SignedRequest | None) -> Address:
        self.calls.append("brand_of")
        if signed is None:
            raise SignatureRefused("The request is not signed: X-LTZ headers are missing")
        try:
            brand = address_of(signed.brand_id)
        except ValueError as error:
            raise SignatureRefused("X-LTZ-Brand-Id must be the brand's address") from error
        await (self.check or self._check)(signed, brand)
        return brand

    async def _check(self, signed: SignedRequest, brand: Address) -> None:
        check_form(signed, time.time())
        if not is_signed_with(signed, self.keys.get(brand, ())):
            raise SignatureRefused("The request is not signed by this brand")

    async def spend(self, caller: SignedCaller) -> None:
        self.calls.append("spend")
        self._spend(caller.brand, caller.nonce)

    def _spend(self, brand: Address, nonce: str) -> None:
        if (brand, nonce) in self.nonces:
            raise SignatureRefused("X-LTZ-Nonce was used before")
        self.nonces.add((brand, nonce))

    async def redeem(self, request: RedeemRequest) -> RedeemedCharges:
        self.calls.append("redeem")
        self.requests.append(request)
        slot = (request.brand, request.idempotency_key or f"none {len(self.requests)}")
        earlier = self.by_key.get(slot)
        if earlier is not None:
            if earlier.fingerprint != request.fingerprint:
                raise IdempotencyKeyReused("This idempotency key was used with another request")
            return RedeemedCharges(earlier, already_processed=True)
        token = self._own_token(request.brand, request.collection_id, request.token_id)
        left = perk_charges.remaining_before(token, request.amount, request.user, 0)
        self.tokens[token.id] = structs.replace(token, used=token.used + request.amount)
        self.by_key[slot] = a_redemption(request, token, left, is_mined=self.is_mining)
        return RedeemedCharges(self.by_key[slot], already_processed=False)

    async def token(
        self, caller: SignedCaller, collection_id: int, token_id: int
    ) -> tuple[Token, IndexedHeight]:
        self.calls.append("token")
        self._spend(caller.brand, caller.nonce)
        return self._own_token(caller.brand, collection_id, token_id), self.as_of

    async def holders(
        self, caller: SignedCaller, collection_id: int, after: int, limit: int
    ) -> TokenPage:
        self.calls.append("holders")
        self._spend(caller.brand, caller.nonce)
        self._own(caller.brand, collection_id)
        held = [self.tokens[each] for each in sorted(self.tokens)]
        held = [token for token in held if token.collection_id == collection_id]
        behind = [token for token in held if token.id > after][:limit]
        return TokenPage(behind, len(held), None)

    def _own(self, brand: Address, collection_id: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        perk_charges.check_collection_owner(collection_id, self.owners.get(collection_id), brand)

    def _own_token(self, brand: Address, collection_id: int, token_id: int) -> Token:
        self._own(brand, collection_id)
        return perk_charges.token_of(self.tokens.get(token_id), token_id, collection_id)


def a_perk(number: int = 1, **changes: Any) -> Token:
    """A token of COLLECTION with three charges, none of them used."""
    token = Token(
        id=(COLLECTION << SERIAL_BITS) + number,
        collection_id=COLLECTION,
        holder=WALLET,
        max_charges=3,
        used=0,
        claimed_at=datetime(2026, 3, 1, 9, 30, tzinfo=UTC),
        last_redeemed_at=None,
        block_number=950,
    )
    return structs.replace(token, **changes)


def a_redemption(
    request: RedeemRequest, token: Token, left: int, *, is_mined: bool = True
) -> StoredRedemption:
    return StoredRedemption(
        id=uuid4(),
        relay_id=1,
        collection_id=token.collection_id,
        token_id=token.id,
        holder=token.holder,
        amount=request.amount,
        remaining_before=left,
        max_charges=token.max_charges,
        fingerprint=request.fingerprint,
        transaction_hash=MINT,
        succeeded=True if is_mined else None,
        mined_at=datetime(2026, 3, 14, 9, 30, tzinfo=UTC) if is_mined else None,
    )


@dataclass
class FakeConstraints:
    """Caches results as (brand, URL, user, collection).

    A brand's key invalidates only the brand's own.
    """

    keys: dict[str, Address] = field(default_factory=lambda: {API_KEY: address_of(BRAND_ID)})
    cached: set[tuple[Address, str, Address, int]] = field(default_factory=set)
    requests: list[tuple[str | None, str, Address | None, int | None]] = field(default_factory=list)
    refusal: Exception | None = None

    async def invalidate(
        self, api_key: str | None, api_url: str, user: Address | None, collection_id: int | None
    ) -> int:
        self.requests.append((api_key, api_url, user, collection_id))
        if self.refusal is not None:
            raise self.refusal
        if api_key is not None and api_key not in self.keys:
            raise Unauthorized("The API key is not valid")
        wanted = (None if api_key is None else self.keys[api_key], api_url, user, collection_id)
        gone = {
            result
            for result in self.cached
            if all(want in {None, has} for want, has in zip(wanted, result, strict=True))
        }
        self.cached -= gone
        return len(gone)


@dataclass
class FakeDomains:
    """Brands by the domain whose record names them. Raises `refusal` if it is set."""

    brands: dict[str, Address] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    refusal: Exception | None = None

    async def brand_of(self, domain: str) -> Address | None:
        self.requests.append(domain)
        if self.refusal is not None:
            raise self.refusal
        return self.brands.get(domain)


@dataclass
class FakePayments:
    """Opens sessions and mints those that are `paid`. Raises `refusal` if it is set.

    `events` are the provider's events. An event is the provider's if its signature is `signature`.
    """

    opened: list[CheckoutRequest] = field(default_factory=list)
    keys: dict[tuple[Address, str], tuple[CheckoutRequest, CheckoutPage]] = field(
        default_factory=dict
    )
    paid: dict[str, Payment] = field(default_factory=dict)
    minted: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    signature: str = "t=1,v1=good"
    refusal: Exception | None = None

    async def open_checkout(self, request: CheckoutRequest) -> CheckoutPage:
        self._refuse()
        if request.brand_id != address_of(BRAND_ID):
            raise BrandUnknown("Unknown brand")
        slot = (request.brand_id, request.idempotency_key or f"none {len(self.opened)}")
        if slot not in self.keys:
            id_ = f"cs_test_{len(self.opened)}"
            self.opened.append(request)
            self.keys[slot] = (request, CheckoutPage(id_, f"https://pay.example/{id_}"))
        first, opened = self.keys[slot]
        if first != request:
            raise IdempotencyKeyReused("This idempotency key was used with another request")
        return opened

    async def mint(self, session_id: str) -> MintedPayment:
        self.requests.append(session_id)
        self._refuse()
        if session_id not in self.paid:
            raise not_found()
        is_new = session_id not in self.minted
        self.minted.add(session_id)
        return MintedPayment(self.paid[session_id], MINT, already_processed=not is_new)

    async def process_event(self, raw: bytes, signature: str | None) -> None:
        self._refuse()
        if signature != self.signature:
            raise PaymentRefused("Stripe-Signature: not of this body")
        self.events.append(raw)

    def _refuse(self) -> None:
        if self.refusal is not None:
            raise self.refusal


@dataclass
class FakePregeneration:
    """Gives each account a wallet, `most` times. Raises `refusal` if it is set."""

    wallets: dict[tuple[str, str], AccountWallet] = field(default_factory=dict)
    requests: list[PregenerationRequest] = field(default_factory=list)
    signed: list[SignedRequest | None] = field(default_factory=list)
    counted: int = 0
    most: int = PER_MINUTE.max_hits
    reset_at: float = field(default_factory=lambda: time.time() + 42)
    refusal: Exception | None = None

    async def admit(
        self, brand_id: Address, signed: SignedRequest | None = None
    ) -> RateLimitStatus:
        self.signed.append(signed)
        if signed is not None and not is_signed_with(signed, [SECURITY_KEY]):
            raise SignatureRefused("The request is not signed by this brand")
        if brand_id != address_of(BRAND_ID):
            raise BrandUnknown("Unknown brand")
        self.counted += 1
        if self.counted > self.most:
            raise too_many(PER_MINUTE, 42)
        return RateLimitStatus(
            True, PER_MINUTE.max_hits, PER_MINUTE.max_hits - self.counted, self.reset_at
        )

    async def pregenerate(self, request: PregenerationRequest) -> RecordedPregeneration:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        slot = (request.account.provider, request.account.user_id)
        is_new = slot not in self.wallets
        number = len(self.wallets) + 1
        made = AccountWallet(f"did:privy:c{number}", Address(number.to_bytes(20, "big")))
        return RecordedPregeneration(self.wallets.setdefault(slot, made), created_new=is_new)


SITE_HOST = "site.example"
NONCE, FRESH_NONCE = "a1b2c3d4e5", "f6a7b8c9d0"
COOKIE = "wordpress_logged_in_5d41402abc=ann%7C1900000000%7Ctoken%7Chmac"
COFFEE = Perk(
    id="6f1c2a4e-9d1b-4b7e-8f43-2f8f0e1c5a77", name="Free coffee", category="drinks", item_id=1
)
CODE = "UCR8-E7T3-2FNP"
LINK_CODE = "7KQ2M9XA"
LINKED_AT = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
ANN = Member(
    brand_id=address_of(BRAND_ID),
    host=SITE_HOST,
    site_user_id=42,
    username="ann",
    user_id=UUID("6a6f7d0e-2f53-5b0c-9d3a-8d1d0f5f5a11"),
    wallet=WALLET,
    subject=None,
)


@dataclass
class FakeSite:
    """The site of a brand with one member, ann, one perk and a milestone of seven days.

    Every method that follows the log-in raises `refusal` if it is set. `calls` has the names of the
    called methods, in order.
    """

    brand: Brand = field(
        default_factory=lambda: Brand.model_validate(
            {"id": BRAND_ID, "name": "Demo", "domains": ("shop.example",), "perks": (COFFEE,)}
        )
    )
    visitor: Member = ANN
    own_paths: tuple[str, ...] = ()
    calls: list[str] = field(default_factory=list)
    requests: list[object] = field(default_factory=list)
    refusal: BaseException | None = None
    log_in_refusal: BaseException | None = None
    confirmed: set[HostCredentials] = field(default_factory=set)
    is_claimed: bool = False
    is_pending: bool = False
    price: int = 25 * LTZ
    balance: int = 1_250 * LTZ
    spendable: int = 320 * LTZ
    codes: dict[str, tuple[str, int]] = field(default_factory=lambda: {LINK_CODE: ("user", 500)})
    links: dict[str, list[Link]] = field(default_factory=dict)
    multiplier: Decimal = Decimal("1.5")
    entries: tuple[LeaderboardEntry, ...] = (LeaderboardEntry("9d2c6a1f", "ann", 320, 1),)

    def services(self) -> SiteServices:
        return SiteServices(
            members=self, check_ins=self, leaderboards=self, redemptions=self, links=self
        )

    def brand_of(self, host: str) -> Brand:
        self.calls.append(f"brand_of {host}")
        if host != SITE_HOST:
            raise SiteUnknown("No loyalty programme is configured for this site.")
        return self.brand

    def api_paths_of(self, host: str) -> tuple[str, ...]:
        return self.own_paths if host == SITE_HOST else ()

    async def member(self, host: str, credentials: HostCredentials) -> AuthenticatedMember:
        self.brand_of(host)
        self.calls.append("member")
        if self.log_in_refusal is not None:
            raise self.log_in_refusal
        if (credentials.cookie, credentials.nonce) != (COOKIE, NONCE):
            raise NotLoggedIn("You are not logged in at this site.")
        return AuthenticatedMember(self.visitor, FRESH_NONCE)

    def is_confirmed(self, _host: str, credentials: HostCredentials) -> bool:
        return credentials in self.confirmed

    async def owner_of(self, token: str) -> TokenUser:
        self.calls.append("owner_of")
        if token not in (TOKEN, OTHER_TOKEN):
            raise Unauthorized("Invalid or expired token")
        return TokenUser("user" if token == TOKEN else "other", (WALLET,))

    async def new_code(self, owner: TokenUser, host: str, daily_allowance: int) -> LinkCode:
        self._record("new_code", (owner.subject, host, daily_allowance))
        if host != SITE_HOST:
            raise NotFound("No brand has a site at this host")
        self.codes[LINK_CODE] = (owner.subject, daily_allowance)
        return LinkCode(LINK_CODE, host, daily_allowance, LINKED_AT + CODE_LIFE)

    async def links_of(self, owner: TokenUser) -> list[Link]:
        self._record("links_of", owner.subject)
        return self.links.get(owner.subject, [])

    async def end_at(self, owner: TokenUser, host: str) -> None:
        self._record("end_at", (owner.subject, host))
        if host != SITE_HOST or not self.links.pop(owner.subject, None):
            raise NotFound("You have no link at this host")

    async def link(self, member: Member, typed: str) -> LinkedWallet:
        self._record("link", typed)
        if typed not in self.codes:
            raise LinkRefused("This code is wrong.")
        subject, allowance = self.codes.pop(typed)
        made = (LINKED_AT, LINKED_AT + LINK_LIFE)
        link = Link(member.brand_id, member.host, member.username, WALLET, allowance, *made)
        self.links[subject] = [link]
        return LinkedWallet(WALLET, allowance)

    async def end(self, member: Member) -> None:
        self._record("end", member)
        self.links.clear()

    async def funds(self, brand: Brand, member: Member) -> MemberFunds:
        self._record("funds", member.wallet)
        link = next((link for links in self.links.values() for link in links), None)
        if link is None:
            return MemberFunds(self.balance, self.spendable, None)
        allowance = Allowance(link.daily_allowance * LTZ, 40 * LTZ)
        lasting = ActiveLink(uuid4(), link.expires_at, date(2026, 3, 14), allowance)
        return MemberFunds(self.balance, self.spendable + allowance.left, lasting)

    async def check_in(self, member: Member) -> CheckInResult:
        self._record("check_in", member)
        was_claimed, self.is_claimed = self.is_claimed, True
        return CheckInResult(self._streak(), 0 if was_claimed else 15, was_claimed)

    async def claim_milestone(self, member: Member, days: int) -> int:
        self._record("claim_milestone", days)
        if days != 7:
            raise MilestoneRefused("There is no such milestone.")
        return 50

    async def streak(self, member: Member) -> StreakSummary:
        self._record("streak", member)
        return self._streak()

    def _streak(self) -> StreakSummary:
        return StreakSummary(8, self.multiplier, Milestone(30, 250), (Milestone(7, 50),))

    async def read(
        self, brand: Brand, host: str, metric: Metric, period: Period, limit: int
    ) -> Leaderboard:
        self._record("read", (brand.id, host, metric, period, limit))
        return Leaderboard(self.entries[:limit], len(self.entries))

    async def redeem(
        self, brand: Brand, member: Member, perk_id: UUID, max_cost: int | None
    ) -> RedeemedPerk:
        self._record("redeem", perk_id)
        check_cost(self.price, max_cost)
        perk = brand.perk(perk_id)
        if perk is None:
            raise RedemptionRefused("This site offers no such perk.")
        redemption = SiteRedemption(
            id=uuid4(),
            brand=brand.address,
            wallet=member.wallet,
            perk_id=perk_id,
            name=perk.name,
            category=perk.category,
            collection_id=None,
            item_id=1,
            price=self.price,
            confirmation_code=CODE,
        )
        return RedeemedPerk(redemption, self.is_pending)

    async def perks(self, brand: Brand) -> list[PerkOffer]:
        self._record("perks", brand.id)
        return [PerkOffer(perk, self.price, is_available=True) for perk in brand.perks]

    def _record(self, name: str, request: object) -> None:
        self.calls.append(name)
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal


def a_payment(session_id: str = "cs_test_paid", usd_cents: int = 500) -> Payment:
    return Payment(session_id, address_of(BRAND_ID), WALLET, usd_cents, "pi_1")


@dataclass
class RunningSurfaces:
    """A running application, a client, and the fakes behind the surfaces."""

    url: str
    client: aiohttp.ClientSession
    events: FakeEvents
    relays: FakeRelays = field(default_factory=FakeRelays)
    perks: FakePerkCharges = field(default_factory=FakePerkCharges)
    constraints: FakeConstraints = field(default_factory=FakeConstraints)
    domains: FakeDomains = field(default_factory=FakeDomains)
    payments: FakePayments = field(default_factory=FakePayments)
    pregeneration: FakePregeneration = field(default_factory=FakePregeneration)
    site: FakeSite = field(default_factory=FakeSite)
    limits: RateLimits = field(default_factory=RateLimits)
    health: Health = field(default_factory=lambda: Health(True, True, True))

    async def state(self) -> Health:
        return self.health

    def has_injected(self, error: BaseException) -> bool:
        """True if a fake holds the error as one to raise."""
        fakes = (
            self.events,
            self.relays,
            self.perks,
            self.constraints,
            self.domains,
            self.payments,
            self.pregeneration,
            self.site,
        )
        return any(error is value for fake in fakes for value in vars(fake).values())

    def reset_relays(self) -> None:
        """Resets the fake: a new surface would take longer to start than a test."""
        vars(self.relays).update(vars(FakeRelays()))
        vars(self.limits).update(vars(RateLimits()))

    def reset_payments(self) -> None:
        vars(self.payments).update(vars(FakePayments()))
        vars(self.limits).update(vars(RateLimits()))

    def reset_pregenerations(self) -> None:
        vars(self.pregeneration).update(vars(FakePregeneration()))
        vars(self.limits).update(vars(RateLimits()))

    def reset_site(self) -> None:
        vars(self.site).update(vars(FakeSite()))
        vars(self.limits).update(vars(RateLimits()))

    def reset_domains(self) -> None:
        vars(self.domains).update(vars(FakeDomains()))
        vars(self.limits).update(vars(RateLimits()))

    def reset_perks(self) -> None:
        vars(self.perks).update(vars(FakePerkCharges()))
        vars(self.constraints).update(vars(FakeConstraints()))
        vars(self.limits).update(vars(RateLimits()))


@asynccontextmanager
async def serving(app: App, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The app's address while it listens on a free port."""
    stop = asyncio.Event()
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    set_port = listening.set_result
    task = asyncio.create_task(serve(app, "127.0.0.1", 0, stop, on_listening=set_port, tls=tls))
    task.add_done_callback(lambda _task: listening.done() or listening.cancel())
    await asyncio.wait({listening})
    if task.done():
        await task
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{listening.result()}"
    finally:
        stop.set()
        await task


@asynccontextmanager
async def a_surface(
    policy: HttpPolicy | None = None, gate: AdmissionGate | None = None
) -> AsyncIterator[RunningSurfaces]:
    events = FakeEvents()
    async with aiohttp.ClientSession() as client:
        surface = RunningSurfaces("", client, events)
        services = replace(
            services_over(events, lambda host: ("." + host).endswith(".shop.example")),
            health=surface.state,
            relays=surface.relays,
            perk_charges=surface.perks,
            constraints=surface.constraints,
            domains=surface.domains,
            payments=surface.payments,
            pregeneration=surface.pregeneration,
            site=surface.site.services(),
            limits=surface.limits,
        )
        policy = policy or HttpPolicy(grace_seconds=2.0)
        app = build_app(services, policy, gate)
        with only_declared_errors(app, policy, surface.has_injected):
            async with serving(app) as url:
                surface.url = url
                yield surface


def services_over(
    events: FakeEvents, is_known_domain: Callable[[str], bool] = lambda _host: False
) -> Services:
    """Healthy services, with rate limits counted in memory."""

    async def health() -> Health:
        return Health(True, True, True)

    return Services(
        events=events,
        health=health,
        is_known_domain=is_known_domain,
        relays=FakeRelays(),
        perk_charges=FakePerkCharges(),
        constraints=FakeConstraints(),
        domains=FakeDomains(),
        payments=FakePayments(),
        pregeneration=FakePregeneration(),
        site=FakeSite().services(),
        limits=RateLimits(),
    )


def an_event(**changes: object) -> dict[str, object]:
    """A valid body. A field of `None` is sent as null."""
    return {
        "brandId": BRAND_ID,
        "eventType": "account_creation",
        "userEmail": "ada@example.com",
        "domain": "shop.example",
    } | changes


def without(field_name: str) -> dict[str, object]:
    body = an_event()
    del body[field_name]
    return body
