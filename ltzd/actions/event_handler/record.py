"""Records a brand's customer events and queues the rewards they earn (spec 4.1).

The checks run first; then the identity provider finds or creates the wallet; then the limits are
decided on the stored claims, and one statement writes event, reward and wake-up if the claims are
unchanged. The answer waits up to five seconds for the mint to be published; after that it says
"queued", and the reward is minted later. The events of one request are recorded independently, in
their order.
"""

import asyncio
import math
from collections.abc import Awaitable, Iterable, Sequence
from datetime import datetime
from time import time
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from cachetools import LRUCache
from msgspec import structs

from ltzd import telemetry, tracing
from ltzd.actions.event_handler.batch_decision import (
    EventCheck,
    PreparedEvent,
    RecordedEvent,
    SignedNonce,
)
from ltzd.actions.event_handler.hash_waiter import MintHashWaiters
from ltzd.actions.event_handler.ids import event_ids
from ltzd.actions.event_handler.lookups import EventLookups, check_of
from ltzd.actions.event_handler.policy import DEFAULT_POLICY, EventPolicy
from ltzd.actions.event_handler.writer import AddressErased, EventWriter
from ltzd.actions.mint_capacity import MintCapacity
from ltzd.actions.request_signatures import RequestSignatures
from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.actions.users.registration import UserRegistration
from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.request_ids import current_request_id
from ltzd.errors import (
    AutomationDisabled,
    BrandUnknown,
    DomainUnauthorized,
    EventNotConfigured,
    NotFound,
    RateLimited,
    Refused,
    SignatureRefused,
)
from ltzd.rules.brands.configuration import Brand, EventRule
from ltzd.rules.domains.names import event_domain, is_authorized
from ltzd.rules.event_handler.brand_limits import (
    rate_limited,
    refuse_large_reward,
    refuse_unmintable_reward,
)
from ltzd.rules.event_handler.claims import check_channel, is_bypass, reward_of
from ltzd.rules.request_signatures import SignedRequest
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool, session
from ltzd.store.event_handler import events
from ltzd.store.event_handler.events import EventRow
from ltzd.store.users import users
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.users.users import User
from ltzd.store.wakeups import WakeupHub
from ltzd.values import Address, Hash32, hex_of

_KNOWN_USERS = 100_000
_RECORDED = telemetry.EVENTS.labels("recorded")
_QUEUED = telemetry.REWARDS_QUEUED.labels("event")
_MINUTE_SECONDS = 60
_MOST_REPETITIONS = 10
_PENDING_WALLET_SECONDS = 30.0
"""Longer than the identity provider and a commit can take together."""

Answer = TypeVar("Answer")


class EventRequest(msgspec.Struct, frozen=True):
    """A well-formed request.

    `origin` is the Origin header, `network` the client's IP address (of IPv6 its /64) for the limit
    per address, and `signed` the request's signature headers. `request_id` is a signed request's
    among others with the same nonce.
    """

    brand_id: Address
    event_type: str
    email: str
    domain: str | None
    source_url: str | None
    user_identifier: str | None
    metadata: dict[str, Any]
    origin: str | None
    network: str = ""
    signed: SignedRequest | None = None
    request_id: UUID | None = None


class EventStatus(msgspec.Struct, frozen=True):
    """`status` is queued, published, minted, final or failed."""

    event_id: UUID
    event_type: str
    status: str
    ltz: int
    wallet: Address
    transaction_hash: Hash32 | None
    block_number: int | None
    created_at: datetime


class EventHandler:
    def __init__(  # noqa: PLR0913 (one parameter per collaborator, and the policy)
        self,
        pool: Pool,
        wakeups: WakeupHub,
        brands: BrandCache,
        identity: IdentityProvider,
        hashes: MintHashWaiters,
        signatures: RequestSignatures,
        limits: RateLimits,
        capacity: MintCapacity,
        *,
        erased: ErasedAddresses,
        policy: EventPolicy = DEFAULT_POLICY,
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._brands = brands
        self._identity = identity
        self._hashes = hashes
        self._signatures = signatures
        self._limits = limits
        self._capacity = capacity
        self._lookups = EventLookups(pool, erased)
        self._ids = event_ids()
        self._known: LRUCache[str, User] = LRUCache(_KNOWN_USERS)
        self._pending_wallets = _PendingWallets()
        self._registration = UserRegistration(pool, identity, erased)
        self._writer = EventWriter(pool, wakeups, self._known, policy)

    async def run(self) -> None:
        """Commit events until cancelled."""
        await self._writer.run()

    async def record(self, request: EventRequest) -> RecordedEvent:
        """Raises the narrowest Refused or Unavailable; nothing is recorded then."""
        try:
            prepared = await self._prepare(request)
            recorded = await self._write(request, prepared)
        except Refused as refusal:
            telemetry.EVENTS.labels(type(refusal).__name__).inc()
            raise
        _RECORDED.inc()
        return await self._await_hash(request.brand_id, recorded)

    async def record_all(
        self, requests: Sequence[EventRequest | Refused]
    ) -> list[RecordedEvent | BaseException]:
        """Record each event independently; all hashes are awaited together.

        Events that depend on each other are decided in order, see `EventWriter.write`. A request
        that was refused before keeps its place. Returns, in order, the recorded event or what
        `record` would have raised.
        """
        prepared = await self._prepare_all(requests)
        recorded = await _gather(
            event if isinstance(event, BaseException) else self._write_one(request, event)
            for request, event in zip(requests, prepared, strict=True)
        )
        for outcome in recorded:
            if isinstance(outcome, Refused):
                telemetry.EVENTS.labels(type(outcome).__name__).inc()
            elif isinstance(outcome, RecordedEvent):
                _RECORDED.inc()
        return await _gather(map(self._answer, requests, recorded))

    def _answer(
        self, request: EventRequest | Refused, outcome: RecordedEvent | BaseException
    ) -> Awaitable[RecordedEvent] | BaseException:
        if isinstance(outcome, BaseException):
            return outcome
        assert isinstance(request, EventRequest), "a refused request is not recorded"
        return self._await_hash(request.brand_id, outcome)

    async def _prepare_all(
        self, requests: Sequence[EventRequest | Refused]
    ) -> list[PreparedEvent | BaseException]:
        """Prepare concurrently, or one by one if preparing counts in one of the brands' limits."""

        def prepare(request: EventRequest | Refused) -> Awaitable[PreparedEvent] | Refused:
            return request if isinstance(request, Refused) else self._prepare(request)

        if not any(map(self._counts_while_preparing, requests)):
            return await _gather(map(prepare, requests))
        return [outcome for request in requests for outcome in await _gather([prepare(request)])]

    def _counts_while_preparing(self, request: EventRequest | Refused) -> bool:
        brand = None if isinstance(request, Refused) else self._brands.get(request.brand_id)
        return brand is not None and bool(
            brand.max_new_wallets_per_hour or brand.events_per_minute_per_ip
        )

    async def find(self, event_id: UUID) -> EventStatus:
        """Raises NotFound."""
        async with session(self._pool) as connection:
            event = await events.find(connection, event_id)
        if event is None:
            raise NotFound("Event not found")
        return EventStatus(
            event_id=event.id,
            event_type=event.event_type,
            status=_status(event),
            ltz=event.ltz,
            wallet=event.wallet,
            transaction_hash=event.hash,
            block_number=event.mint_block_number,
            created_at=event.created_at,
        )

    def configuration(self, brand_id: Address) -> list[EventRule]:
        """The event rules of a brand. Raises BrandUnknown."""
        return list(self._brand(brand_id).configured_events())

    def _brand(self, brand_id: Address) -> Brand:
        brand = self._brands.get(brand_id)
        if brand is None:
            raise BrandUnknown("Unknown brand")
        return brand

    async def _prepare(self, request: EventRequest) -> PreparedEvent:
        """Run the checks without locks, then find or create the wallet.

        The order of the checks: brand, automation, domain, event type, channel, reward, signature,
        claims, limits.
        """
        brand = self._brand(request.brand_id)
        rule, domain = _admit(request, brand)
        check_channel(rule, request.metadata)
        ltz = reward_of(rule, request.metadata)
        refuse_large_reward(brand, rule.type, ltz)
        refuse_unmintable_reward(rule, ltz, await self._capacity.exceeded_by(ltz))
        source = request.metadata.get("source")
        source = source if isinstance(source, str) else None
        signed = await self._signed(request, brand, rule)
        # Without a credential any caller may claim these two, so a brand may demand its signature.
        is_trusted = signed is not None or not brand.signed_bypass
        check = EventCheck(
            key=(request.brand_id, request.event_type, users.email_key(request.email)),
            brand=brand,
            rule=rule,
            ltz=ltz,
            is_bypass=is_trusted and is_bypass(brand, source),
            skips_cooldown=is_trusted and request.metadata.get("skip_cooldown") is True,
            signed=signed,
        )
        user, is_known, check = await self._find_user(request, check)
        event = EventRow(
            id=next(self._ids),
            brand_id=request.brand_id,
            event_type=request.event_type,
            email=request.email,
            user_id=user.id,
            domain=domain,
            source=source,
            user_identifier=request.user_identifier,
            metadata=request.metadata,
            ltz=ltz,
            wallet=user.wallet,
        )
        tracing.note_event(event.id)
        return PreparedEvent(event, user, is_known, check, current_request_id())

    async def _signed(
        self, request: EventRequest, brand: Brand, rule: EventRule
    ) -> SignedNonce | None:
        """Verify the signature if brand or rule demands one.

        Raises SignatureRefused for an invalid signature, although an unsigned event may be
        accepted, and for an unsigned event if the rule demands a signature.
        """
        if not (brand.signed_bypass or rule.signed):
            return None
        if request.signed is None:
            if rule.signed:
                raise SignatureRefused(
                    f"Events of type {rule.type} must be signed by the brand: "
                    "X-LTZ headers are missing"
                )
            return None
        assert request.request_id is not None, "a signed request has an id"
        await self._signatures.check(request.signed, request.brand_id)
        return SignedNonce(request.signed.nonce, request.request_id)

    async def _find_user(
        self, request: EventRequest, check: EventCheck
    ) -> tuple[User, bool, EventCheck]:
        """Return the event's user, from the cache, the database or the identity provider.

        Also returns whether the user has a row, and the check with the user's key, which is another
        one if the address was erased. An event that would be refused now is refused
        before a wallet is created for it, and before it counts for its IP address.
        """
        email_key = check.key[2]
        user = self._known.get(email_key)
        if user is not None and not check.brand.events_per_minute_per_ip:
            return user, True, check_of(user, check)
        user, check, snapshot = await self._lookups.find(check, user)
        pending = self._pending_wallets.others(check)
        try:
            check.decide(snapshot, is_new_user=user is None, pending_wallets=pending)
        except RateLimited:
            # The snapshot is newer than the user's absence: it may count this user's own wallet.
            if user is not None or not await self._lookups.has_user(email_key):
                raise
            return await self._find_user(request, check)
        if user is None:
            return await self._create_user(request, check), False, check
        await self._count(request, check.brand)
        self._known[email_key] = user
        return user, True, check

    async def _create_user(self, request: EventRequest, check: EventCheck) -> User:
        # Counted before the first await: the next event is decided with this wallet counted.
        if check.brand.max_new_wallets_per_hour:
            self._pending_wallets.add(check)
        try:
            await self._count(request, check.brand)
        except BaseException:
            self._pending_wallets.remove(check)
            raise
        try:
            wallet = await self._identity.wallet_of_email(request.email, request.brand_id)
        except asyncio.CancelledError:
            self._register(request, check)
            raise
        except BaseException:
            self._pending_wallets.remove(check)
            raise
        email_key = check.key[2]
        id_ = users.user_id(wallet.subject, email_key)
        return User(id_, email_key, wallet.subject, wallet.wallet)

    def _register(self, request: EventRequest, check: EventCheck) -> None:
        """Count the wallet of an event whose caller is gone: the identity provider makes it anyway.

        A stranger could otherwise have any number of wallets made by hanging up.
        """
        if check.brand.max_new_wallets_per_hour:
            registration = self._registration.begin(request.email, check.brand)
            registration.add_done_callback(lambda _: self._pending_wallets.remove(check))

    async def _write_one(
        self, request: EventRequest | Refused, prepared: PreparedEvent
    ) -> RecordedEvent:
        assert isinstance(request, EventRequest), "a refused request is not prepared"
        return await self._write(request, prepared)

    async def _write(self, request: EventRequest, prepared: PreparedEvent) -> RecordedEvent:
        """Write the event; prepare it again if the user's address was erased meanwhile.

        Requests that had found the user before may put the former key back into the cache, so more
        than one repetition may be needed.
        """
        for _ in range(_MOST_REPETITIONS):
            try:
                return await self._write_prepared(prepared)
            except AddressErased:
                self._known.pop(users.email_key(request.email), None)
                prepared = await self._prepare(request)
        return await self._write_prepared(prepared)

    async def _write_prepared(self, prepared: PreparedEvent) -> RecordedEvent:
        try:
            return await self._writer.write(prepared)
        finally:
            self._pending_wallets.remove(prepared.check)

    async def _count(self, request: EventRequest, brand: Brand) -> None:
        """Count an event that passes all other rules for its IP address. Raises RateLimited."""
        most = brand.events_per_minute_per_ip
        if not most:
            return
        limit = RateLimit("events", most, _MINUTE_SECONDS)
        window = await self._limits.hit(limit, hex_of(request.brand_id), request.network)
        if not window.is_within:
            seconds = max(1, math.ceil(window.reset_at - time()))
            raise rate_limited("events a minute from one address", most, seconds)

    async def _await_hash(self, brand_id: Address, recorded: RecordedEvent) -> RecordedEvent:
        if recorded.ltz == 0:
            return recorded
        _QUEUED.inc()
        if self._brands.is_paused(brand_id):
            return recorded
        with telemetry.timed(telemetry.HASH_WAIT_SECONDS):
            hash_ = await self._hashes.wait(recorded.event_id, self._policy.hash_wait)
        if hash_ is None:
            return recorded
        return structs.replace(recorded, transaction_hash=hash_, status="published")


class _PendingWallets:
    """Wallets that this process is creating or committing now, by brand and e-mail key.

    A burst of events cannot pass its brand's limit of new wallets before the commits that count
    them. An entry that is never removed, because its caller was cancelled, expires.
    """

    def __init__(self) -> None:
        self._expiries: dict[Address, dict[str, float]] = {}

    def others(self, check: EventCheck) -> int:
        """Return how many of the brand's are pending, without this event's own; drops expired."""
        brand_id, email_key = check.key[0], check.key[2]
        now = loop_time()
        expiries = self._expiries.pop(brand_id, {})
        pending = {key: expiry for key, expiry in expiries.items() if expiry > now}
        if pending:
            self._expiries[brand_id] = pending
        return len(pending) - (email_key in pending)

    def add(self, check: EventCheck) -> None:
        expiry = loop_time() + _PENDING_WALLET_SECONDS
        self._expiries.setdefault(check.key[0], {})[check.key[2]] = expiry

    def remove(self, check: EventCheck) -> None:
        expiries = self._expiries.get(check.key[0], {})
        expiries.pop(check.key[2], None)
        if not expiries:
            self._expiries.pop(check.key[0], None)


async def _gather(
    outcomes: Iterable[Awaitable[Answer] | BaseException],
) -> list[Answer | BaseException]:
    """Await all concurrently, started in order; exceptions take the place of results."""
    return await asyncio.gather(*map(_result, outcomes), return_exceptions=True)


async def _result(outcome: Awaitable[Answer] | BaseException) -> Answer:
    if isinstance(outcome, BaseException):
        raise outcome
    return await outcome


def _admit(request: EventRequest, brand: Brand) -> tuple[EventRule, str]:
    """Return the event's rule and the domain it comes from (spec 4.1 rule 1)."""
    if not brand.automation:
        raise AutomationDisabled("Automation is disabled for this brand")
    domain = event_domain(request.domain, request.source_url, request.origin)
    if domain is None:
        raise DomainUnauthorized(
            "No domain: give domain, sourceUrl or an Origin header",
            configuredDomains=list(brand.domains),
        )
    if not is_authorized(domain, brand.domains):
        configured = ", ".join(brand.domains)
        raise DomainUnauthorized(
            f"Domain {domain} is not authorized for this brand, "
            f"which is configured for {configured}",
            domain=domain,
            configuredDomains=list(brand.domains),
        )
    rule = brand.rule_of(request.event_type)
    if rule is None:
        fault = f"eventType: {request.event_type} is not configured for this brand"
        raise EventNotConfigured(fault, errors=[fault])
    return rule, domain


def _status(event: events.StoredEvent) -> str:
    if event.ltz == 0 or event.is_final:
        return "final"
    if event.mint_block_number is not None:
        return "minted"
    if event.is_failed:
        return "failed"
    return "published" if event.hash else "queued"
