"""Decides a group of events on how their claims stand, in order, and what its commit comes to.

No I/O: who reads and writes is `event_writing.py`. Records that every event makes are structs of
msgspec: a frozen dataclass takes ten times as long to make.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from uuid import UUID

import msgspec
from msgspec import structs

from ltzd.concurrency.batch_writer import RETRY, Retry
from ltzd.errors import LtzdError, Refused, SignatureRefused
from ltzd.rules.brands.configuration import Brand, EventRule
from ltzd.rules.event_handler.brand_limits import (
    Quota,
    budget_of,
    refuse_more_wallets,
    refuse_over_budget,
    wallets_of,
)
from ltzd.rules.event_handler.claims import ClaimRecord, decide
from ltzd.rules.request_signatures import SignedRequest
from ltzd.store.event_handler.events import (
    ClaimKey,
    ClaimQuery,
    ClaimSnapshot,
    EventRow,
    InsertedEvent,
    NewEvent,
)
from ltzd.store.users.users import User
from ltzd.values import Address

_NO_CLAIM = ClaimRecord()


class EventCheck(msgspec.Struct, frozen=True):
    """What decides on one event, once its claim is read.

    `signed` is the brand's signature where it was asked for and is good.
    """

    key: ClaimKey
    brand: Brand
    rule: EventRule
    ltz: int
    is_bypass: bool
    skips_cooldown: bool
    signed: SignedRequest | None

    def wanted(self) -> ClaimQuery:
        """What must be read to decide. A total that nothing limits is counted by nobody."""
        brand_id = self.key[0]
        is_limited = self.brand.daily_mint_budget or self.brand.max_new_wallets_per_hour
        return ClaimQuery(
            claim=self.key,
            total=self.key[:2] if self.rule.max_total_claims is not None else None,
            usage=brand_id if is_limited else None,
            nonce=None if self.signed is None else (brand_id, self.signed.nonce),
        )

    def shares_a_count(self) -> bool:
        """Whether other users' events can use up what this one needs."""
        wanted = self.wanted()
        return wanted.total is not None or wanted.usage is not None

    def decide(
        self, standing: ClaimSnapshot, *, is_new_user: bool, on_the_way: int = 0
    ) -> ClaimRecord:
        """The claim as it stands. Raises the first refusal.

        `on_the_way` counts wallets of this brand that are being made now.
        """
        self._refuse_used_nonce(standing)
        claim = standing.claims.get(self.key, _NO_CLAIM)
        decide(
            rule=self.rule,
            window_seconds=self.brand.duplicate_window_seconds,
            bypass=self.is_bypass,
            skip_cooldown=self.skips_cooldown,
            claim=claim,
            total_claims=standing.totals.get(self.key[:2]),
            now=standing.now,
        )
        budget, wallets = self.quotas(standing)
        refuse_over_budget(budget, _used(standing, self.key[0], budget), self.ltz, standing.now)
        if is_new_user:
            made = _used(standing, self.key[0], wallets) + on_the_way
            refuse_more_wallets(wallets, made, standing.now)
        return claim

    def quotas(self, standing: ClaimSnapshot) -> tuple[Quota | None, Quota | None]:
        """The brand's budget and its limit of new wallets, None where it has none."""
        return budget_of(self.brand, standing.now), wallets_of(self.brand, standing.now)

    def _refuse_used_nonce(self, standing: ClaimSnapshot) -> None:
        if self.signed is None:
            return
        used_by = standing.nonces.get((self.key[0], self.signed.nonce))
        if used_by is not None and used_by != self.signed.id:
            raise SignatureRefused("X-LTZ-Nonce was used before")


def _used(standing: ClaimSnapshot, brand_id: Address, quota: Quota | None) -> int:
    return 0 if quota is None else standing.usage.get((brand_id, quota.kind, quota.start), 0)


class PreparedEvent(msgspec.Struct, frozen=True):
    """An event that passed the first checks. `is_known_user`: he has a row already."""

    event: EventRow
    user: User
    is_known_user: bool
    check: EventCheck


class Written(msgspec.Struct, frozen=True):
    event: EventRow
    is_new_user: bool


class AlreadyWritten(Enum):
    """The event is in the database: the write whose outcome was lost had happened."""

    WRITTEN = "written"


WRITTEN = AlreadyWritten.WRITTEN

Verdict = NewEvent | LtzdError | Retry | AlreadyWritten


def decide_all(
    group: Sequence[PreparedEvent], standing: ClaimSnapshot, known: Collection[str]
) -> list[Verdict]:
    """Decide in order, each on what those before it left; moves `standing` along.

    `known` are e-mail keys of users who have rows. A second good event of a claim waits for the
    next group, since a write takes one of each; and with it whatever comes after it and shares a
    count of its brand.
    """
    verdicts: list[Verdict] = []
    taken: set[ClaimKey] = set()
    waiting: set[Address] = set()
    newcomers: set[str] = set()
    for one in group:
        key = one.check.key
        if standing.claims.get(key, _NO_CLAIM).last_event_id == one.event.id and key not in taken:
            verdicts.append(WRITTEN)
            continue
        if key[0] in waiting and one.check.shares_a_count():
            verdicts.append(RETRY)
            continue
        is_new = not one.is_known_user and key[2] not in known and key[2] not in newcomers
        try:
            claim = one.check.decide(standing, is_new_user=is_new)
        except Refused as refusal:
            verdicts.append(refusal)
            continue
        if key in taken:
            waiting.add(key[0])
            verdicts.append(RETRY)
            continue
        taken.add(key)
        claim = ClaimRecord(claim.claims + 1, one.event.id, standing.now)
        new = _new_event(one, claim, standing, is_new_user=is_new)
        _move(standing, one.check, new)
        if is_new:
            newcomers.add(key[2])
        verdicts.append(new)
    return verdicts


def _new_event(
    one: PreparedEvent, claim: ClaimRecord, standing: ClaimSnapshot, *, is_new_user: bool
) -> NewEvent:
    budget, wallets = one.check.quotas(standing)
    signed = one.check.signed
    return NewEvent(
        event=one.event,
        key=one.check.key,
        claim=claim,
        identity_subject=None if one.is_known_user else one.user.identity_subject,
        maximum=one.check.rule.max_total_claims,
        budget=budget,
        wallets=wallets if is_new_user else None,
        nonce=None if signed is None else signed.nonce,
        request_id=None if signed is None else signed.id,
        time_zone=one.check.brand.time_zone,
    )


def _move(standing: ClaimSnapshot, check: EventCheck, new: NewEvent) -> None:
    """How things stand once `new` is written."""
    brand_id = new.key[0]
    standing.claims[new.key] = new.claim
    if new.maximum is not None:
        standing.totals[new.key[:2]] = standing.totals.get(new.key[:2], 0) + 1
    if new.nonce is not None and new.request_id is not None:
        standing.nonces[brand_id, new.nonce] = new.request_id
    for quota, more in ((new.budget, check.ltz), (new.wallets, 1)):
        if quota is not None:
            used = _used(standing, brand_id, quota)
            standing.usage[brand_id, quota.kind, quota.start] = used + more


def outcomes_of(
    group: Sequence[PreparedEvent],
    verdicts: Sequence[Verdict],
    won: Mapping[ClaimKey, InsertedEvent],
    given: Mapping[UUID, Address],
) -> list[Written | Exception | Retry]:
    """What each caller hears; a new user is announced by one event. `given` tells where rewards go
    that were written before.

    Whoever lost its claim to another process decides again, and so does whoever was refused beside
    a loser of the same brand, perhaps because of it.
    """
    lost = {v.key[0] for v in verdicts if isinstance(v, NewEvent) and v.key not in won}
    announced: set[str] = set()
    outcomes: list[Written | Exception | Retry] = []
    for one, verdict in zip(group, verdicts, strict=True):
        key = one.check.key
        if isinstance(verdict, NewEvent) and key in won:
            event = structs.replace(one.event, user_id=won[key].user_id, wallet=won[key].wallet)
            outcomes.append(Written(event, won[key].is_new_user and key[2] not in announced))
            announced.add(key[2])
        elif isinstance(verdict, AlreadyWritten):
            is_new = not one.is_known_user and key[2] not in announced
            wallet = given.get(one.event.id, one.event.wallet)
            outcomes.append(Written(structs.replace(one.event, wallet=wallet), is_new))
            announced.add(key[2])
        elif isinstance(verdict, NewEvent | Retry) or key[0] in lost:
            outcomes.append(RETRY)
        else:
            outcomes.append(verdict)
    return outcomes
