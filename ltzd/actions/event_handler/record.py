"""Records a brand's customer events and owes their rewards (spec 4.1).

Checks run first; then the wallet is found or made at the identity provider; then the limits are
decided on how the claims stand, and one statement writes event, reward and wake-up if they still
stand so. The answer waits until the mint is published, five seconds at most: later it is "queued",
and the event is minted all the same. Of several events in one request each is recorded for itself,
in their order.
"""

import asyncio
import math
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import time
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from cachetools import LRUCache

from ltzd import telemetry
from ltzd.actions.event_handler.batch_decision import EventCheck, PreparedEvent, Written
from ltzd.actions.event_handler.hash_waiter import MintHashWaiters
from ltzd.actions.event_handler.ids import event_ids
from ltzd.actions.event_handler.writer import EventWriter
from ltzd.actions.mint_capacity import MintCapacity
from ltzd.actions.request_signatures import RequestSignatures
from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import (
    AutomationDisabled,
    BrandUnknown,
    DomainUnauthorized,
    EventNotConfigured,
    NotFound,
    Refused,
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
from ltzd.store.users.users import User
from ltzd.store.wakeups import WakeupHub
from ltzd.values import Address, Hash32, hex_of

HASH_WAIT_SECONDS = 5.0
"""How long an answer waits for its hashes before it says "queued" (design.md 4, Events)."""
_KNOWN_USERS = 100_000
_RECORDED = telemetry.EVENTS.labels("recorded")
_QUEUED = telemetry.REWARDS_QUEUED.labels("event")
_MINUTE_SECONDS = 60
_NEWCOMER_SECONDS = 30.0
"""Longer than the identity provider and a commit can take together."""

Answer = TypeVar("Answer")


class EventRequest(msgspec.Struct, frozen=True):
    """A well-formed request; `origin` is the Origin header, `signed` the signature's if any."""

    brand_id: Address
    event_type: str
    email: str
    domain: str | None
    source_url: str | None
    user_identifier: str | None
    metadata: dict[str, Any]
    origin: str | None
    network: str = ""
    """The client's address, of IPv6 the /64: what a limit per IP counts."""
    signed: SignedRequest | None = None


class RecordedEvent(msgspec.Struct, frozen=True):
    """`status`: "published" with a hash, "queued" without, "final" for a reward of 0."""

    event_id: UUID
    event_type: str
    ltz: int
    wallet: Address
    wallet_created: bool
    transaction_hash: Hash32 | None
    status: str


@dataclass(frozen=True, slots=True)
class EventStatus:
    """`status`: queued, published, minted, final or failed."""

    event_id: UUID
    event_type: str
    status: str
    ltz: int
    wallet: Address
    transaction_hash: Hash32 | None
    block_number: int | None
    created_at: datetime


class EventHandler:
    def __init__(
        self,
        pool: Pool,
        wakeups: WakeupHub,
        brands: BrandCache,
        identity: IdentityProvider,
        hashes: MintHashWaiters,
        signatures: RequestSignatures,
        limits: RateLimits,
        capacity: MintCapacity,
    ) -> None:
        self._pool = pool
        self._brands = brands
        self._identity = identity
        self._hashes = hashes
        self._signatures = signatures
        self._limits = limits
        self._capacity = capacity
        self._ids = event_ids()
        self._known: LRUCache[str, User] = LRUCache(_KNOWN_USERS)
        self._newcomers = _Newcomers()
        self._writer = EventWriter(pool, wakeups, self._known)

    async def run(self) -> None:
        """Commit what is to be recorded, until cancelled."""
        await self._writer.run()

    async def record(self, request: EventRequest) -> RecordedEvent:
        """Raises the narrowest Refused or Unavailable; nothing is recorded then."""
        try:
            claim = await self._prepare(request)
            written = await self._write(claim)
        except Refused as refusal:
            telemetry.EVENTS.labels(type(refusal).__name__).inc()
            raise
        _RECORDED.inc()
        return await self._answer(written)

    async def record_all(
        self, requests: Sequence[EventRequest | Refused]
    ) -> list[RecordedEvent | BaseException]:
        """Each for itself, decided in their order; all hashes are waited for together.

        A request that is refused already keeps its place. Answers in their order: the recorded
        event, or what `record` would have raised.
        """
        prepared = await self._prepare_all(requests)
        written = await _all(
            one if isinstance(one, BaseException) else self._write(one) for one in prepared
        )
        for one in written:
            if isinstance(one, Refused):
                telemetry.EVENTS.labels(type(one).__name__).inc()
            elif isinstance(one, Written):
                _RECORDED.inc()
        return await _all(
            one if isinstance(one, BaseException) else self._answer(one) for one in written
        )

    async def _prepare_all(
        self, requests: Sequence[EventRequest | Refused]
    ) -> list[PreparedEvent | BaseException]:
        """Together; one after the other where a brand counts something on the way."""

        def begun(one: EventRequest | Refused) -> Awaitable[PreparedEvent] | Refused:
            return one if isinstance(one, Refused) else self._prepare(one)

        if not any(map(self._counts_early, requests)):
            return await _all(map(begun, requests))
        return [outcome for one in requests for outcome in await _all([begun(one)])]

    def _counts_early(self, request: EventRequest | Refused) -> bool:
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
        """The rules in force. Raises BrandUnknown."""
        return list(self._brand(brand_id).configured_events())

    def _brand(self, brand_id: Address) -> Brand:
        brand = self._brands.get(brand_id)
        if brand is None:
            raise BrandUnknown("Unknown brand")
        return brand

    async def _prepare(self, request: EventRequest) -> PreparedEvent:
        """Every check that needs no lock, in design.md's order, then the wallet."""
        brand = self._brand(request.brand_id)
        rule, domain = _admit(request, brand)
        check_channel(rule, request.metadata)
        ltz = reward_of(rule, request.metadata)
        refuse_large_reward(brand, rule.type, ltz)
        refuse_unmintable_reward(rule, ltz, await self._capacity.exceeded_by(ltz))
        source = request.metadata.get("source")
        source = source if isinstance(source, str) else None
        signed = await self._signed(request, brand)
        # Without a credential anybody may say these two, so a brand may want its signature.
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
        user, is_known = await self._meet(request, check)
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
        return PreparedEvent(event, user, is_known, check)

    async def _signed(self, request: EventRequest, brand: Brand) -> SignedRequest | None:
        """The signature, where the brand asks for one and the request has one.

        Raises SignatureRefused: who signs must sign right, and hears it if not.
        """
        if request.signed is None or not brand.signed_bypass:
            return None
        await self._signatures.check(request.signed, request.brand_id)
        return request.signed

    async def _meet(self, request: EventRequest, check: EventCheck) -> tuple[User, bool]:
        """The event's user: known here, else from the database, else from the provider.

        Also answers whether he has a row. A hopeless event is refused before a wallet is made, and
        before it counts for its address.
        """
        email_key = check.key[2]
        user = self._known.get(email_key)
        if user is not None and not check.brand.events_per_minute_per_ip:
            return user, True
        async with session(self._pool) as connection:
            standing = await events.read_snapshot(connection, [check.wanted()])
            user = user or await users.find(connection, email_key)
        on_the_way = self._newcomers.beside(check)
        check.decide(standing, is_new_user=user is None, on_the_way=on_the_way)
        if user is None:
            return await self._welcome(request, check), False
        await self._count(request, check.brand)
        self._known[email_key] = user
        return user, True

    async def _welcome(self, request: EventRequest, check: EventCheck) -> User:
        """A user without a row. On the way from here, before anybody else is decided on."""
        if check.brand.max_new_wallets_per_hour:
            self._newcomers.enter(check)
        try:
            await self._count(request, check.brand)
            found = await self._identity.wallet_of_email(request.email)
        except BaseException:
            self._newcomers.leave(check)
            raise
        email_key = check.key[2]
        id_ = users.user_id(found.subject, email_key)
        return User(id_, email_key, found.subject, found.wallet)

    async def _write(self, claim: PreparedEvent) -> Written:
        try:
            return await self._writer.write(claim)
        finally:
            self._newcomers.leave(claim.check)

    async def _count(self, request: EventRequest, brand: Brand) -> None:
        """Raises RateLimited. Counts events that pass all other rules."""
        most = brand.events_per_minute_per_ip
        if not most:
            return
        limit = RateLimit("events", most, _MINUTE_SECONDS)
        window = await self._limits.hit(limit, hex_of(request.brand_id), request.network)
        if not window.is_within:
            seconds = max(1, math.ceil(window.reset_at - time()))
            raise rate_limited("events a minute from one address", most, seconds)

    async def _answer(self, written: Written) -> RecordedEvent:
        event = written.event
        hash_ = None
        if event.ltz > 0:
            _QUEUED.inc()
            if not self._brands.is_paused(event.brand_id):
                with telemetry.timed(telemetry.HASH_WAIT_SECONDS):
                    hash_ = await self._hashes.wait(event.id, HASH_WAIT_SECONDS)
        return RecordedEvent(
            event_id=event.id,
            event_type=event.event_type,
            ltz=event.ltz,
            wallet=event.wallet,
            wallet_created=written.is_new_user,
            transaction_hash=hash_,
            status="final" if event.ltz == 0 else "published" if hash_ else "queued",
        )


class _Newcomers:
    """Wallets of this process that are made or committed now, by brand and e-mail key.

    So a crowd cannot outrun its brand's limit on the way to the commit that counts it. An entry
    that nobody takes back (its caller was cancelled) ends by itself.
    """

    def __init__(self, clock: Clock = loop_time) -> None:
        self._clock = clock
        self._until: dict[Address, dict[str, float]] = {}

    def beside(self, check: EventCheck) -> int:
        """How many of the brand, not counting this event's own. Forgets those that have ended."""
        brand_id, email_key = check.key[0], check.key[2]
        now = self._clock()
        until = self._until.pop(brand_id, {})
        live = {key: end for key, end in until.items() if end > now}
        if live:
            self._until[brand_id] = live
        return len(live) - (email_key in live)

    def enter(self, check: EventCheck) -> None:
        end = self._clock() + _NEWCOMER_SECONDS
        self._until.setdefault(check.key[0], {})[check.key[2]] = end

    def leave(self, check: EventCheck) -> None:
        until = self._until.get(check.key[0], {})
        until.pop(check.key[2], None)
        if not until:
            self._until.pop(check.key[0], None)


async def _all(
    those: Iterable[Awaitable[Answer] | BaseException],
) -> list[Answer | BaseException]:
    """Together, begun in order; an exception takes the place of an answer."""
    return await asyncio.gather(*map(_begun, those), return_exceptions=True)


async def _begun(one: Awaitable[Answer] | BaseException) -> Answer:
    if isinstance(one, BaseException):
        raise one
    return await one


def _admit(request: EventRequest, brand: Brand) -> tuple[EventRule, str]:
    """The rule of the event and the domain it comes from (spec 4.1 rule 1)."""
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
