"""Records a brand's customer events and owes their rewards (spec 4.1).

Checks run first without locks; then the wallet is found or made at the identity provider; then one
database transaction repeats the limit checks under locks and writes event, reward and wake-up. The
answer waits until the mint is published, five seconds at most: later it is "queued", and the event
is minted all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from cachetools import LRUCache

from ltzd import telemetry
from ltzd.actions.group_commit import GroupCommit
from ltzd.actions.published_hashes import PublishedHashes
from ltzd.errors import (
    AutomationDisabled,
    BrandUnknown,
    DomainUnauthorized,
    EventNotConfigured,
    LtzdError,
    NotFound,
    Refused,
)
from ltzd.providers.identity import IdentityClient
from ltzd.rules.brands import Brand, EventRule
from ltzd.rules.domains import event_domain, is_authorized
from ltzd.rules.events import ClaimRecord, check_channel, decide, is_bypass, reward_of
from ltzd.store import events, users
from ltzd.store.brands import BrandBook
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.events import ClaimKey, EventRow, TotalKey
from ltzd.store.signals import REWARDS, Signals
from ltzd.store.users import User
from ltzd.values import Address, Hash32

HASH_WAIT_SECONDS = 5.0
"""How long an answer waits for its hash before it says "queued" (design.md 4, Events)."""
_KNOWN_USERS = 100_000


@dataclass(frozen=True, slots=True)
class EventRequest:
    """A well-formed request; `origin` is the Origin header."""

    brand_id: Address
    event_type: str
    email: str
    domain: str | None
    source_url: str | None
    user_identifier: str | None
    metadata: dict[str, Any]
    origin: str | None


@dataclass(frozen=True, slots=True)
class RecordedEvent:
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
    """`status`: queued, published, minted or final."""

    event_id: UUID
    event_type: str
    status: str
    ltz: int
    wallet: Address
    transaction_hash: Hash32 | None
    block_number: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class _Claim:
    """An event that passed the checks without locks, with what the locked check needs."""

    event: EventRow
    key: ClaimKey
    user: User
    rule: EventRule
    window_seconds: int
    is_bypass: bool
    skips_cooldown: bool

    def decide(self, claim: ClaimRecord, total: int | None, now: datetime) -> None:
        decide(
            rule=self.rule,
            window_seconds=self.window_seconds,
            bypass=self.is_bypass,
            skip_cooldown=self.skips_cooldown,
            claim=claim,
            total_claims=total,
            now=now,
        )

    @property
    def total_key(self) -> TotalKey | None:
        """None for a type without a global maximum, whose total nobody counts."""
        return self.key[:2] if self.rule.max_total_claims is not None else None


@dataclass(frozen=True, slots=True)
class _Written:
    user: User
    is_new_user: bool


class EventHandler:
    def __init__(
        self,
        pool: Pool,
        signals: Signals,
        brands: BrandBook,
        identity: IdentityClient,
        hashes: PublishedHashes,
    ) -> None:
        self._pool = pool
        self._signals = signals
        self._brands = brands
        self._identity = identity
        self._hashes = hashes
        self._known: LRUCache[str, User] = LRUCache(_KNOWN_USERS)
        self._commits = GroupCommit(self._write)

    async def run(self) -> None:
        """Commit what `record` gathers, until cancelled."""
        await self._commits.run()

    async def record(self, request: EventRequest) -> RecordedEvent:
        """Raises the narrowest Refused or Unavailable; nothing is recorded then."""
        try:
            claim = await self._prepare(request)
            written = await self._commits.submit(claim)
        except Refused as refusal:
            telemetry.EVENTS.labels(type(refusal).__name__).inc()
            raise
        telemetry.EVENTS.labels("recorded").inc()
        return await self._answer(claim.event, written)

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

    async def _prepare(self, request: EventRequest) -> _Claim:
        """Every check that needs no lock, in design.md's order, then the wallet."""
        brand = self._brand(request.brand_id)
        rule, domain = _admit(request, brand)
        check_channel(rule, request.metadata)
        ltz = reward_of(rule, request.metadata)
        source = request.metadata.get("source")
        source = source if isinstance(source, str) else None
        key = (request.brand_id, request.event_type, users.email_key(request.email))
        nobody = User(UUID(int=0), key[2], "", Address(bytes(20)))
        claim = _Claim(
            event=EventRow(
                id=uuid4(),
                brand_id=request.brand_id,
                event_type=request.event_type,
                email=request.email,
                user_id=nobody.id,
                domain=domain,
                source=source,
                user_identifier=request.user_identifier,
                metadata=request.metadata,
                ltz=ltz,
                wallet=nobody.wallet,
            ),
            key=key,
            user=nobody,
            rule=rule,
            window_seconds=brand.duplicate_window_seconds,
            is_bypass=is_bypass(brand, source),
            skips_cooldown=request.metadata.get("skip_cooldown") is True,
        )
        return replace(claim, user=self._known.get(key[2]) or await self._meet(claim))

    async def _meet(self, claim: _Claim) -> User:
        """A user this process does not know yet: from the database, else from the provider.

        A hopeless event is refused before a wallet is made for it.
        """
        async with session(self._pool) as connection:
            record, now = await events.find_claim(connection, claim.key)
            total = claim.total_key and await events.find_total(connection, claim.total_key)
            user = await users.find(connection, claim.key[2])
        claim.decide(record, total, now)
        if user is not None:
            self._known[user.email_key] = user
            return user
        found = await self._identity.wallet_of_email(claim.event.email)
        return User(uuid4(), claim.key[2], found.subject, found.wallet)

    async def _write(self, group: Sequence[_Claim]) -> list[_Written | Exception]:
        """One database transaction for a group: decide under locks, in order, then write."""
        async with transaction(self._pool) as connection:
            claims, now = await events.lock_claims(connection, (one.key for one in group))
            totals = await events.lock_totals(
                connection, (one.total_key for one in group if one.total_key)
            )
            outcomes, accepted = _decide_all(group, claims, totals, now)
            there = await self._settle_users(connection, accepted)
            rows = [_with_user(one, there[one.key[2]][0]) for one in accepted]
            if rows:
                changed = {one.key: claims[one.key] for one in accepted}
                await events.write(connection, rows, changed, totals)
        if accepted:
            self._signals.ring(REWARDS)
        self._known.update({key: user for key, (user, _) in there.items()})
        return [_outcome(one, refusal, there) for one, refusal in zip(group, outcomes, strict=True)]

    async def _settle_users(
        self, connection: Connection, accepted: Sequence[_Claim]
    ) -> dict[str, tuple[User, bool]]:
        """Who each event is for, and whether he is new: whoever was written first counts."""
        keys = {one.key[2] for one in accepted}
        there = {key: (user, False) for key in keys if (user := self._known.get(key))}
        new = {one.key[2]: one.user for one in accepted if one.key[2] not in there}
        return there | await users.insert(connection, list(new.values())) if new else there

    async def _answer(self, event: EventRow, written: _Written) -> RecordedEvent:
        hash_ = None
        if event.ltz > 0:
            telemetry.REWARDS_QUEUED.labels("event").inc()
            with telemetry.timed(telemetry.HASH_WAIT_SECONDS):
                hash_ = await self._hashes.wait(event.id, HASH_WAIT_SECONDS)
        return RecordedEvent(
            event_id=event.id,
            event_type=event.event_type,
            ltz=event.ltz,
            wallet=written.user.wallet,
            wallet_created=written.is_new_user,
            transaction_hash=hash_,
            status="final" if event.ltz == 0 else "published" if hash_ else "queued",
        )


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
        raise EventNotConfigured(
            f"eventType: {request.event_type} is not configured for this brand"
        )
    return rule, domain


def _decide_all(
    group: Sequence[_Claim],
    claims: dict[ClaimKey, ClaimRecord],
    totals: dict[TotalKey, int],
    now: datetime,
) -> tuple[list[LtzdError | None], list[_Claim]]:
    """Decide in order, each on what those before it left; moves `claims` and `totals` along."""
    outcomes: list[LtzdError | None] = []
    accepted: list[_Claim] = []
    for one in group:
        total = totals[one.total_key] if one.total_key else None
        try:
            one.decide(claims[one.key], total, now)
        except Refused as refusal:
            outcomes.append(refusal)
            continue
        outcomes.append(None)
        accepted.append(one)
        claims[one.key] = ClaimRecord(claims[one.key].claims + 1, one.event.id, now)
        if one.total_key:
            totals[one.total_key] += 1
    return outcomes, accepted


def _with_user(claim: _Claim, user: User) -> EventRow:
    return replace(claim.event, user_id=user.id, wallet=user.wallet)


def _outcome(
    claim: _Claim, refusal: LtzdError | None, there: dict[str, tuple[User, bool]]
) -> _Written | Exception:
    """A new user is announced by one event of the group: the first that was accepted."""
    if refusal is not None:
        return refusal
    user, is_new = there[claim.key[2]]
    if is_new:
        there[claim.key[2]] = (user, False)
    return _Written(user, is_new)


def _status(event: events.StoredEvent) -> str:
    if event.ltz == 0 or event.is_final:
        return "final"
    if event.mint_block_number is not None:
        return "minted"
    return "published" if event.hash else "queued"
