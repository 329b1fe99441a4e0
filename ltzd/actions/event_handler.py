"""Records a brand's customer events and owes their rewards (spec 4.1).

Checks run first; then the wallet is found or made at the identity provider; then the limits are
decided on how the claims stand, and one statement writes event, reward and wake-up if they still
stand so. The answer waits until the mint is published, five seconds at most: later it is "queued",
and the event is minted all the same.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from cachetools import LRUCache

from ltzd import telemetry
from ltzd.actions.event_ids import event_ids
from ltzd.actions.group_commit import AGAIN, Again, GroupCommit
from ltzd.actions.published_hashes import PublishedHashes
from ltzd.errors import (
    AutomationDisabled,
    BrandUnknown,
    DatabaseUnavailable,
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
from ltzd.store.database import Pool, session
from ltzd.store.events import ClaimKey, EventRow, NewEvent, Standing, TotalKey
from ltzd.store.signals import REWARDS, Signals
from ltzd.store.users import User
from ltzd.values import Address, Hash32

HASH_WAIT_SECONDS = 5.0
"""How long an answer waits for its hash before it says "queued" (design.md 4, Events)."""
_KNOWN_USERS = 100_000
_NO_CLAIM = ClaimRecord()
_RECORDED = telemetry.EVENTS.labels("recorded")
_QUEUED = telemetry.REWARDS_QUEUED.labels("event")
_UNSURE_SECONDS = 5.0
"""How long a caller whose write may have happened waits for the database to come back."""
_UNSURE_PAUSE_SECONDS = 0.2


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
class _Check:
    """What decides on one event, once its claim is read."""

    key: ClaimKey
    rule: EventRule
    window_seconds: int
    is_bypass: bool
    skips_cooldown: bool

    @property
    def total_keys(self) -> tuple[TotalKey, ...]:
        """Empty for a type without a global maximum, whose total nobody counts."""
        return (self.key[:2],) if self.rule.max_total_claims is not None else ()

    def decide(self, standing: Standing) -> ClaimRecord:
        """The claim as it stands. Raises the first refusal."""
        claim = standing.claims.get(self.key, _NO_CLAIM)
        decide(
            rule=self.rule,
            window_seconds=self.window_seconds,
            bypass=self.is_bypass,
            skip_cooldown=self.skips_cooldown,
            claim=claim,
            total_claims=standing.totals.get(self.key[:2]),
            now=standing.now,
        )
        return claim


@dataclass(frozen=True, slots=True)
class _Claim:
    """An event that passed the first checks. `is_known_user`: he has a row already."""

    event: EventRow
    user: User
    is_known_user: bool
    check: _Check


@dataclass(frozen=True, slots=True)
class _Written:
    wallet: Address
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
        self._unsure: dict[UUID, float] = {}
        self._ids = event_ids()
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
        _RECORDED.inc()
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
        check = _Check(
            key=key,
            rule=rule,
            window_seconds=brand.duplicate_window_seconds,
            is_bypass=is_bypass(brand, source),
            skips_cooldown=request.metadata.get("skip_cooldown") is True,
        )
        user = self._known.get(key[2])
        is_known = user is not None
        if user is None:
            user, is_known = await self._meet(request.email, check)
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
        return _Claim(event, user, is_known, check)

    async def _meet(self, email: str, check: _Check) -> tuple[User, bool]:
        """A user this process does not know yet: from the database, else from the provider.

        Also answers whether he has a row. A hopeless event is refused before a wallet is made.
        """
        async with session(self._pool) as connection:
            standing = await events.standing(connection, [check.key], check.total_keys)
            user = await users.find(connection, check.key[2])
        check.decide(standing)
        if user is not None:
            self._known[user.email_key] = user
            return user, True
        found = await self._identity.wallet_of_email(email)
        id_ = users.user_id(found.subject, check.key[2])
        return User(id_, check.key[2], found.subject, found.wallet), False

    async def _write(self, group: Sequence[_Claim]) -> list[_Written | Exception | Again]:
        """Decide a group on how things stand, in order, and write what still stands so."""
        try:
            standing = await self._standing(group)
        except DatabaseUnavailable as error:
            return await self._hold_unsure(group, error)
        verdicts = _decide_all(group, standing)
        accepted = [verdict for verdict in verdicts if isinstance(verdict, NewEvent)]
        won = await self._commit(accepted)
        self._known.update({one.user.email_key: one.user for one in group if one.check.key in won})
        if won:
            self._signals.ring(REWARDS)
        outcomes = _outcomes(group, verdicts, won)
        for one, outcome in zip(group, outcomes, strict=True):
            if not isinstance(outcome, Again):
                self._unsure.pop(one.event.id, None)
        return outcomes

    async def _standing(self, group: Sequence[_Claim]) -> Standing:
        checks = [one.check for one in group]
        async with session(self._pool) as connection:
            return await events.standing(
                connection,
                (check.key for check in checks),
                (key for check in checks for key in check.total_keys),
            )

    async def _commit(self, accepted: Sequence[NewEvent]) -> dict[ClaimKey, bool]:
        """What was won.

        A database that is lost on the way may have written. The claims tell once it is back; until
        then these events are unsure, and decided again.
        """
        if not accepted:
            return {}
        try:
            async with session(self._pool) as connection:
                return await events.write(connection, accepted)
        except DatabaseUnavailable:
            deadline = asyncio.get_running_loop().time() + _UNSURE_SECONDS
            for new in accepted:
                self._unsure.setdefault(new.event.id, deadline)
            return {}

    async def _hold_unsure(
        self, group: Sequence[_Claim], error: DatabaseUnavailable
    ) -> list[_Written | Exception | Again]:
        """While the database is away: try again for whom it may have written, refuse the others."""
        await asyncio.sleep(_UNSURE_PAUSE_SECONDS)
        now = asyncio.get_running_loop().time()
        outcomes: list[_Written | Exception | Again] = []
        for one in group:
            if self._unsure.get(one.event.id, now) > now:
                outcomes.append(AGAIN)
            else:
                self._unsure.pop(one.event.id, None)
                outcomes.append(error)
        return outcomes

    async def _answer(self, event: EventRow, written: _Written) -> RecordedEvent:
        hash_ = None
        if event.ltz > 0:
            _QUEUED.inc()
            with telemetry.timed(telemetry.HASH_WAIT_SECONDS):
                hash_ = await self._hashes.wait(event.id, HASH_WAIT_SECONDS)
        return RecordedEvent(
            event_id=event.id,
            event_type=event.event_type,
            ltz=event.ltz,
            wallet=written.wallet,
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
        fault = f"eventType: {request.event_type} is not configured for this brand"
        raise EventNotConfigured(fault, errors=[fault])
    return rule, domain


class AlreadyWritten(Enum):
    """The event is in the database: the write whose outcome was lost had happened."""

    WRITTEN = "written"


WRITTEN = AlreadyWritten.WRITTEN

Verdict = NewEvent | LtzdError | Again | AlreadyWritten


def _decide_all(group: Sequence[_Claim], standing: Standing) -> list[Verdict]:
    """Decide in order, each on what those before it left; moves `standing` along.

    A second good event of a claim waits for the next group: a write takes one of each.
    """
    verdicts: list[Verdict] = []
    taken: set[ClaimKey] = set()
    for one in group:
        key = one.check.key
        if standing.claims.get(key, _NO_CLAIM).last_event_id == one.event.id and key not in taken:
            verdicts.append(WRITTEN)
            continue
        try:
            claim = one.check.decide(standing)
        except Refused as refusal:
            verdicts.append(refusal)
            continue
        if key in taken:
            verdicts.append(AGAIN)
            continue
        taken.add(key)
        standing.claims[key] = ClaimRecord(claim.claims + 1, one.event.id, standing.now)
        for total in one.check.total_keys:
            standing.totals[total] = standing.totals.get(total, 0) + 1
        verdicts.append(_new_event(one, standing.claims[key]))
    return verdicts


def _new_event(one: _Claim, claim: ClaimRecord) -> NewEvent:
    return NewEvent(
        event=one.event,
        key=one.check.key,
        claim=claim,
        identity_subject=None if one.is_known_user else one.user.identity_subject,
        maximum=one.check.rule.max_total_claims,
    )


def _outcomes(
    group: Sequence[_Claim],
    verdicts: Sequence[Verdict],
    won: dict[ClaimKey, bool],
) -> list[_Written | Exception | Again]:
    """What each caller hears; a new user is announced by one event.

    Whoever lost its claim to another process decides again, and so does whoever was refused beside
    a loser, perhaps because of it.
    """
    lost = {v.key[:2] for v in verdicts if isinstance(v, NewEvent) and v.key not in won}
    announced: set[str] = set()
    outcomes: list[_Written | Exception | Again] = []
    for one, verdict in zip(group, verdicts, strict=True):
        key = one.check.key
        if isinstance(verdict, NewEvent) and key in won:
            outcomes.append(_Written(one.user.wallet, won[key] and key[2] not in announced))
            announced.add(key[2])
        elif isinstance(verdict, AlreadyWritten):
            is_new = not one.is_known_user and key[2] not in announced
            outcomes.append(_Written(one.user.wallet, is_new))
            announced.add(key[2])
        elif isinstance(verdict, NewEvent | Again) or key[:2] in lost:
            outcomes.append(AGAIN)
        else:
            outcomes.append(verdict)
    return outcomes


def _status(event: events.StoredEvent) -> str:
    if event.ltz == 0 or event.is_final:
        return "final"
    if event.mint_block_number is not None:
        return "minted"
    return "published" if event.hash else "queued"
