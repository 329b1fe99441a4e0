"""How often the operator may send for a user: relays an hour, claims, keys and turns.

`Standing` is what the rows say of a user at one moment; the same rules look at it before the
simulation, without locks, and again under the user's lock when the relay is written.

Raises RateLimited, ClaimLimitReached, IdempotencyKeyReused, ValidationFailed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ltzd.errors import ClaimLimitReached, IdempotencyKeyReused, RateLimited, ValidationFailed
from ltzd.rules.operator.sendable import min_gas_limit
from ltzd.rules.relayer.allowed_calls import MAX_GAS_LIMIT
from ltzd.rules.relayer.calls import RelayWindow, RequestedClaim

RELAYS_AN_HOUR = 35
"""Spec 8."""
WINDOW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class EarlierRelay:
    """A relay that came with the same idempotency key."""

    id: int
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class RelayUsage:
    """`window_start` is None while no hour of his is under way. Times are the database's."""

    now: datetime
    window_start: datetime | None
    used: int
    earlier: EarlierRelay | None
    has_serialized_in_flight: bool
    last_serialized_id: int | None
    """The newest relay of his that took a turn: another one tells that the chain has moved on."""
    claims: Sequence[RequestedClaim]
    """Those in flight."""
    duplicate_id: int | None = None
    """A relay of his in flight that is the same call."""

    @property
    def start(self) -> datetime:
        """Of the window that a relay counts in now: fixed from its first one (choices.md)."""
        return self.window_start or self.now

    def window(self, used_more: int = 0) -> RelayWindow:
        left = RELAYS_AN_HOUR - self.used - used_more
        return RelayWindow(RELAYS_AN_HOUR, max(0, left), (self.start + WINDOW).timestamp())


@dataclass(frozen=True, slots=True)
class ClaimLimit:
    """What the chain says: the user's claims in the collection, and how many it allows."""

    claim: RequestedClaim
    on_chain: int
    most: int | None


def check_gas_limit(data: bytes, wanted: int | None) -> int:
    """Judge the gas limit that a caller wants for a call with this data; answers the least."""
    least = min_gas_limit(data)
    if wanted is not None and wanted > MAX_GAS_LIMIT:
        raise ValidationFailed(
            "The gas limit is above what is relayed", gasLimit=wanted, maxGasLimit=MAX_GAS_LIMIT
        )
    if wanted is not None and wanted < least:
        raise ValidationFailed(
            "gasLimit is too small: the transaction's data alone costs more",
            gasLimit=wanted,
            neededGas=least,
        )
    return least


def check_key(standing: RelayUsage, fingerprint: bytes) -> None:
    if standing.earlier is not None and standing.earlier.fingerprint != fingerprint:
        raise IdempotencyKeyReused("This idempotency key came with another request before")


def check_hour(standing: RelayUsage) -> None:
    if standing.used < RELAYS_AN_HOUR:
        return
    seconds = math.ceil((standing.start + WINDOW - standing.now).total_seconds())
    raise RateLimited(
        f"Too many transactions: {RELAYS_AN_HOUR} an hour for each user",
        limit=RELAYS_AN_HOUR,
        retryAfterSeconds=max(1, seconds),
    )


def check_claims(standing: RelayUsage, limit: ClaimLimit) -> None:
    """Spec 4.2 rule 4. A claim in flight counts until the chain has counted it."""
    in_flight = sum(
        one.collection_id == limit.claim.collection_id and one.expected_claims >= limit.on_chain
        for one in standing.claims
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
