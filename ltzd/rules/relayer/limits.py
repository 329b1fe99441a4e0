"""Limits on the relays of one user: relays an hour, claims of a collection, idempotency keys.

The checks read a `RelayUsage`, the user's rows at one moment. They run before the simulation,
without locks, and again before the relay is written, which compares the rows' version.

Raises RateLimited, ClaimLimitReached, IdempotencyKeyReused, InvalidFields, ValidationFailed.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from ltzd.errors import (
    ClaimLimitReached,
    IdempotencyKeyReused,
    InvalidFields,
    RateLimited,
    ValidationFailed,
)
from ltzd.rules.operator.sendable import min_gas_limit
from ltzd.rules.relayer.allowed_calls import MAX_GAS_LIMIT
from ltzd.rules.relayer.calls import RelayWindow, RequestedClaim, SignedPermit
from ltzd.values import Address

RELAYS_AN_HOUR = 35
"""For each user address (spec 8)."""
WINDOW = timedelta(hours=1)
KEPT_FAILURES = 1_000
"""Calls of a user that would have failed, and are kept for a day with their idempotency keys."""
FAILURES_REASON = "failed_calls"


class EarlierRelay(msgspec.Struct, frozen=True):
    """A relay that was requested with the same idempotency key before."""

    id: int
    fingerprint: bytes


class RelayUsage(msgspec.Struct, frozen=True):
    """A user's relays at one moment. Times are the database's.

    `window_start` is None while the user has no window of an hour open, and `used` counts the
    relays in the open one. `has_serialized_in_flight` and `last_serialized_id` are about the relays
    with `serialized_per_user`: while one is in flight the next one waits, and a newer id than the
    simulation knew shows that the chain may have changed since. `claims` are in flight.
    `calls_in_flight` has the ids of relays in flight by their calls' digests (`RelayPlan.digest`).
    `senders` are the wallets that send the relays in flight, with None for a relay that no wallet
    has signed. `version` counts the relays that were written for the user. `was_relayed`: a
    mined relay of a window that began in the last two hours made the call that was asked about.
    """

    now: datetime
    window_start: datetime | None
    used: int
    earlier: EarlierRelay | None
    has_serialized_in_flight: bool
    last_serialized_id: int | None
    claims: Sequence[RequestedClaim]
    calls_in_flight: Mapping[bytes, int] = msgspec.field(default_factory=dict)
    senders: frozenset[Address | None] = frozenset()
    version: int = 0
    was_relayed: bool = False

    @property
    def start(self) -> datetime:
        """The start of the window that a relay counts in now.

        A window is fixed: it begins with its first relay.
        """
        return self.window_start or self.now

    def window(self, used_more: int = 0) -> RelayWindow:
        left = RELAYS_AN_HOUR - self.used - used_more
        return RelayWindow(RELAYS_AN_HOUR, max(0, left), (self.start + WINDOW).timestamp())


class ClaimLimit(msgspec.Struct, frozen=True):
    """The user's claims of the collection on chain; `most` is None for no limit."""

    claim: RequestedClaim
    on_chain: int
    most: int | None


def check_gas_limit(data: bytes, wanted: int | None) -> int:
    """Check the gas limit that a caller asks for; return the least that this data may have.

    Raises ValidationFailed.
    """
    least = min_gas_limit(data)
    if wanted is not None and wanted > MAX_GAS_LIMIT:
        raise ValidationFailed(
            "The gas limit is above the maximum of a relayed call",
            gasLimit=wanted,
            maxGasLimit=MAX_GAS_LIMIT,
        )
    if wanted is not None and wanted < least:
        raise ValidationFailed(
            "gasLimit is too small: the transaction's data alone costs more",
            gasLimit=wanted,
            neededGas=least,
        )
    return least


def check_permit_deadline(permit: SignedPermit | None, now_seconds: float) -> None:
    """Raises InvalidFields for an expired permit: the call's own failure would not name the permit.

    A used permit is not refused: anybody may have published it, and its allowance may suffice.
    """
    if permit is not None and permit.deadline < now_seconds:
        raise InvalidFields(["metadata.permit.deadline: must not have passed"])


def check_key(usage: RelayUsage, fingerprint: bytes) -> None:
    if usage.earlier is not None and usage.earlier.fingerprint != fingerprint:
        raise IdempotencyKeyReused("This idempotency key was used with another request")


def check_hour(usage: RelayUsage) -> None:
    if usage.used < RELAYS_AN_HOUR:
        return
    seconds = math.ceil((usage.start + WINDOW - usage.now).total_seconds())
    raise RateLimited(
        f"Too many transactions: {RELAYS_AN_HOUR} an hour for each user",
        reset_at=usage.window().reset_at,
        limit=RELAYS_AN_HOUR,
        retryAfterSeconds=max(1, seconds),
    )


def check_failures(kept: int, seconds_left: float) -> None:
    """Check that one more failure may be kept; the oldest is kept for `seconds_left`.

    They cost no gas and count in no hour, so nothing else bounds the rows that a user can write.
    """
    if kept >= KEPT_FAILURES:
        raise RateLimited(
            "Too many calls of this user would have failed today",
            limit=KEPT_FAILURES,
            reason=FAILURES_REASON,
            retryAfterSeconds=max(1, math.ceil(seconds_left)),
        )


def check_claims(usage: RelayUsage, limit: ClaimLimit) -> None:
    """Spec 4.2 rule 4. A claim in flight counts until it is among the claims on chain."""
    in_flight = sum(
        claim.collection_id == limit.claim.collection_id and claim.expected_claims >= limit.on_chain
        for claim in usage.claims
    )
    claims = limit.on_chain + in_flight
    if limit.most is not None and claims >= limit.most:
        raise claim_limit_reached(limit.claim.collection_id, claims, limit.most)


def claim_limit_reached(collection_id: int, claims: int, most: int) -> ClaimLimitReached:
    return ClaimLimitReached(
        "Claim limit reached: the collection allows no more claims to this user",
        collectionId=collection_id,
        currentClaims=claims,
        maxPerUser=most,
    )
