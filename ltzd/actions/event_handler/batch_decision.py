"""Decides on a batch of events in order, and says what its commit means for each caller.

No I/O: `writer` reads the snapshot and writes what is accepted.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from uuid import UUID

import msgspec

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
from ltzd.rules.request_signatures import NONCE_WAS_USED
from ltzd.store.event_handler.events import (
    ClaimKey,
    ClaimQuery,
    ClaimSnapshot,
    EventRow,
    NewEvent,
)
from ltzd.store.users.users import User
from ltzd.values import Address, Hash32

_NO_CLAIM = ClaimRecord()


class SignedNonce(msgspec.Struct, frozen=True):
    """The nonce of a signed request; `request_id` is the request's among others with this nonce."""

    nonce: str
    request_id: UUID


class EventCheck(msgspec.Struct, frozen=True):
    """Everything that decides on one event, except the claims that are read for it.

    `signed` is the nonce of the brand's valid signature, if the brand demands one and the request
    has one.
    """

    key: ClaimKey
    brand: Brand
    rule: EventRule
    ltz: int
    is_bypass: bool
    skips_cooldown: bool
    signed: SignedNonce | None

    def query(self) -> ClaimQuery:
        """Return the keys to read before deciding; only totals that have a limit are counted."""
        brand_id = self.key[0]
        return ClaimQuery(
            claim=self.key,
            total=self.key[:2] if self._has_maximum else None,
            usage=brand_id if self._is_of_limited_brand else None,
            nonce=None if self.signed is None else (brand_id, self.signed.nonce),
        )

    def shares_a_limit(self) -> bool:
        """Return whether other users' events can use up a limit that this event needs."""
        return self._has_maximum or self._is_of_limited_brand

    @property
    def _has_maximum(self) -> bool:
        return self.rule.max_total_claims is not None

    @property
    def _is_of_limited_brand(self) -> bool:
        return bool(self.brand.daily_mint_budget or self.brand.max_new_wallets_per_hour)

    def decide(
        self, snapshot: ClaimSnapshot, *, is_new_user: bool, pending_wallets: int = 0
    ) -> ClaimRecord:
        """Return the event's claim as it is before this event. Raises the first refusal.

        `pending_wallets` is how many wallets for this brand's events are being created now.
        """
        self._refuse_used_nonce(snapshot)
        claim = snapshot.claims.get(self.key, _NO_CLAIM)
        decide(
            rule=self.rule,
            window_seconds=self.brand.duplicate_window_seconds,
            bypass=self.is_bypass,
            skip_cooldown=self.skips_cooldown,
            claim=claim,
            total_claims=snapshot.totals.get(self.key[:2]),
            now=snapshot.now,
        )
        budget, wallets = self.quotas(snapshot)
        refuse_over_budget(budget, _used(snapshot, self.key[0], budget), self.ltz, snapshot.now)
        if is_new_user:
            created = _used(snapshot, self.key[0], wallets) + pending_wallets
            refuse_more_wallets(wallets, created, snapshot.now)
        return claim

    def quotas(self, snapshot: ClaimSnapshot) -> tuple[Quota | None, Quota | None]:
        """Return the brand's LTZ budget and its limit of new wallets, as far as they are set."""
        return budget_of(self.brand, snapshot.now), wallets_of(self.brand, snapshot.now)

    def _refuse_used_nonce(self, snapshot: ClaimSnapshot) -> None:
        if self.signed is None:
            return
        used_by = snapshot.nonces.get((self.key[0], self.signed.nonce))
        if used_by is not None and used_by != self.signed.request_id:
            raise SignatureRefused(NONCE_WAS_USED)


def _used(snapshot: ClaimSnapshot, brand_id: Address, quota: Quota | None) -> int:
    return 0 if quota is None else snapshot.usage.get((brand_id, quota.kind, quota.start), 0)


class PreparedEvent(msgspec.Struct, frozen=True):
    """An event that passed the checks before the batch. A known user has a row."""

    event: EventRow
    user: User
    is_known_user: bool
    check: EventCheck
    request_id: str | None = None


class RecordedEvent(msgspec.Struct, frozen=True):
    """A committed event. `status` is "final" for a reward of 0, otherwise "queued", and "published"
    once the `transaction_hash` of the mint is known."""

    event_id: UUID
    event_type: str
    ltz: int
    wallet: Address
    wallet_created: bool
    transaction_hash: Hash32 | None
    status: str


class AlreadyInserted(Enum):
    """The event is in the database: an earlier write with an unknown outcome had succeeded."""

    INSERTED = "inserted"


INSERTED = AlreadyInserted.INSERTED

Decision = NewEvent | LtzdError | Retry | AlreadyInserted


def decide_all(
    batch: Sequence[PreparedEvent],
    snapshot: ClaimSnapshot,
    known: Collection[str],
    recorded: Collection[UUID] = (),
) -> list[Decision]:
    """Decide in order, each event on what those before it leave; updates `snapshot`.

    `known` holds the e-mail keys of users with rows, `recorded` the events that an earlier write
    has stored. A write takes one event of each claim, so a second acceptable one is retried in the
    next batch, and so is every later event of its brand that shares a limit.
    """
    decisions: list[Decision] = []
    written_claims: set[ClaimKey] = set()
    retried_brands: set[Address] = set()
    new_users: set[str] = set()
    for prepared in batch:
        key = prepared.check.key
        if prepared.event.id in recorded:
            decisions.append(INSERTED)
            continue
        if key[0] in retried_brands and prepared.check.shares_a_limit():
            decisions.append(RETRY)
            continue
        is_new = not prepared.is_known_user and key[2] not in known and key[2] not in new_users
        try:
            claim = prepared.check.decide(snapshot, is_new_user=is_new)
        except Refused as refusal:
            decisions.append(refusal)
            continue
        if key in written_claims:
            retried_brands.add(key[0])
            decisions.append(RETRY)
            continue
        written_claims.add(key)
        claim = ClaimRecord(claim.claims + 1, prepared.event.id, snapshot.now)
        new = _new_event(prepared, claim, snapshot, is_new_user=is_new)
        _apply(snapshot, prepared.check, new)
        if is_new:
            new_users.add(key[2])
        decisions.append(new)
    return decisions


def _new_event(
    prepared: PreparedEvent, claim: ClaimRecord, snapshot: ClaimSnapshot, *, is_new_user: bool
) -> NewEvent:
    budget, wallets = prepared.check.quotas(snapshot)
    signed = prepared.check.signed
    return NewEvent(
        event=prepared.event,
        key=prepared.check.key,
        claim=claim,
        identity_subject=None if prepared.is_known_user else prepared.user.identity_subject,
        maximum=prepared.check.rule.max_total_claims,
        budget=budget,
        wallets=wallets if is_new_user else None,
        nonce=None if signed is None else signed.nonce,
        request_id=None if signed is None else signed.request_id,
        time_zone=prepared.check.brand.time_zone,
    )


def _apply(snapshot: ClaimSnapshot, check: EventCheck, new: NewEvent) -> None:
    """Update the snapshot to what it will be once `new` is written."""
    brand_id = new.key[0]
    snapshot.claims[new.key] = new.claim
    if new.maximum is not None:
        snapshot.totals[new.key[:2]] = snapshot.totals.get(new.key[:2], 0) + 1
    if new.nonce is not None and new.request_id is not None:
        snapshot.nonces[brand_id, new.nonce] = new.request_id
    for quota, more in ((new.budget, check.ltz), (new.wallets, 1)):
        if quota is not None:
            used = _used(snapshot, brand_id, quota)
            snapshot.usage[brand_id, quota.kind, quota.start] = used + more


def outcomes_of(
    batch: Sequence[PreparedEvent],
    decisions: Sequence[Decision],
    inserted: Mapping[ClaimKey, EventRow],
    reward_wallets: Mapping[UUID, Address],
) -> list[RecordedEvent | Exception | Retry]:
    """Return each caller's outcome; of a new user's events only the first created the wallet.

    `reward_wallets` holds the wallets of the rewards that an earlier write inserted. An event whose
    claim another process wrote first is retried. So is an event that was refused beside it for the
    same brand, since its refusal may have rested on the lost event.
    """
    lost_brands = {
        decision.key[0]
        for decision in decisions
        if isinstance(decision, NewEvent) and decision.key not in inserted
    }
    announced: set[str] = set()
    outcomes: list[RecordedEvent | Exception | Retry] = []
    for prepared, decision in zip(batch, decisions, strict=True):
        key, event = prepared.check.key, prepared.event
        if isinstance(decision, NewEvent) and key in inserted:
            row = inserted[key]
            is_new = row.is_new_user and key[2] not in announced
            outcomes.append(_recorded(event, row.wallet, wallet_created=is_new))
            announced.add(key[2])
        elif isinstance(decision, AlreadyInserted):
            is_new = not prepared.is_known_user and key[2] not in announced
            wallet = reward_wallets.get(event.id, event.wallet)
            outcomes.append(_recorded(event, wallet, wallet_created=is_new))
            announced.add(key[2])
        elif isinstance(decision, NewEvent | Retry) or key[0] in lost_brands:
            outcomes.append(RETRY)
        else:
            outcomes.append(decision)
    return outcomes


def _recorded(event: EventRow, wallet: Address, *, wallet_created: bool) -> RecordedEvent:
    return RecordedEvent(
        event_id=event.id,
        event_type=event.event_type,
        ltz=event.ltz,
        wallet=wallet,
        wallet_created=wallet_created,
        transaction_hash=None,
        status="final" if event.ltz == 0 else "queued",
    )
