"""The reward of an event, and the checks of its claim.

The checks run twice: without locks to answer early, then under the claim's lock with the database's
time. Order: duplicate, global maximum, per-user maximum, cooldown.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from uuid import UUID

import msgspec

from ltzd.errors import (
    ChannelNotAllowed,
    CooldownActive,
    DuplicateEvent,
    InvalidFields,
    MaxClaimsReached,
)
from ltzd.rules.brands.configuration import Brand, EventRule

MAX_PURCHASE_DOLLARS = 1_000_000

# Spec 7.1 has two names each for the same thing: `cooldown` and `cooldown_not_expired`, `Cooldown
# active` and `Duplicate reward`. ltzd uses the first of each.
COOLDOWN_REASON = "cooldown"
MAX_CLAIMS_REASON = "max_claims_reached"

_ONE_SECOND = timedelta(seconds=1)
_MOST_DIGITS = 30
_DECIMAL_TEXT = re.compile(rf"[0-9]{{1,{_MOST_DIGITS}}}(\.[0-9]{{1,{_MOST_DIGITS}}})?")
_AMOUNT_RULE = (
    f"metadata.amount: must be dollars, a number or decimal text above 0 and at most "
    f"{MAX_PURCHASE_DOLLARS}, text with at most {_MOST_DIGITS} decimals"
)


class ClaimRecord(msgspec.Struct, frozen=True):
    """A user's earlier claims of an event type. Bypass events count too."""

    claims: int = 0
    last_event_id: UUID | None = None
    last_event_at: datetime | None = None


def reward_of(rule: EventRule, metadata: Mapping[str, object] | None) -> int:
    """Whole LTZ, rounded down. Raises InvalidFields for a purchase without a valid amount."""
    if rule.reward_per_dollar is None:
        return rule.ltz
    dollars = _dollars((metadata or {}).get("amount"))
    return int(dollars * Fraction(rule.reward_per_dollar))


def is_bypass(brand: Brand, source: str | None) -> bool:
    """Spec 4.1 rule 5: events of these sources skip the cooldown and the per-user maximum."""
    return source is not None and source in brand.bypass_sources


def check_channel(rule: EventRule, metadata: Mapping[str, object] | None) -> None:
    """Spec 4.1 rule 2. An empty channel_id counts as present, null as absent."""
    channel = (metadata or {}).get("channel_id")
    if rule.channels and channel is not None and channel not in rule.channels:
        raise ChannelNotAllowed("Channel not allowed", allowedChannels=list(rule.channels))


def decide(
    *,
    rule: EventRule,
    window_seconds: int,
    bypass: bool,
    skip_cooldown: bool,
    claim: ClaimRecord,
    total_claims: int | None,
    now: datetime,
) -> None:
    """Return if the event may be claimed; raises the first refusal if not.

    `total_claims` counts the claims of all users, or is None for a rule without a global maximum
    and before the first claim.
    """
    _refuse_duplicate(timedelta(seconds=window_seconds), claim, now)
    _refuse_beyond(rule.max_total_claims, total_claims or 0, "by all users together")
    if bypass:
        return
    _refuse_beyond(rule.claims_per_user, claim.claims, "by this user")
    if not skip_cooldown:
        _refuse_cooldown(rule.cooldown, claim, now)


def _refuse_duplicate(window: timedelta, claim: ClaimRecord, now: datetime) -> None:
    if claim.last_event_at is not None and now - claim.last_event_at < window:
        raise DuplicateEvent("Duplicate event", existingEventId=str(claim.last_event_id))


def _refuse_beyond(limit: int | None, claims: int, by_whom: str) -> None:
    if limit is not None and claims >= limit:
        raise MaxClaimsReached(
            "Max claims reached",
            message=f"This event was claimed {claims} times {by_whom}; the maximum is {limit}",
            reason=MAX_CLAIMS_REASON,
            totalClaims=claims,
            maxClaims=limit,
        )


def _refuse_cooldown(cooldown: timedelta, claim: ClaimRecord, now: datetime) -> None:
    if claim.last_event_at is None:
        return
    left = claim.last_event_at + cooldown - now
    if left <= timedelta(0):
        return
    seconds = -(-left // _ONE_SECOND)
    raise CooldownActive(
        "Cooldown active",
        message=f"This event can be claimed again in {seconds} seconds",
        reason=COOLDOWN_REASON,
        cooldownSeconds=seconds,
        previousReward=str(claim.last_event_id),
    )


def _dollars(amount: object) -> Fraction:
    match amount:
        case bool():
            dollars = None
        case str() if _DECIMAL_TEXT.fullmatch(amount):
            dollars = Fraction(amount)
        case int():
            dollars = Fraction(amount)
        case float() if abs(amount) <= MAX_PURCHASE_DOLLARS:
            # The caller wrote the shortest decimal that reads as this float.
            dollars = Fraction(repr(amount))
        case _:
            dollars = None
    if dollars is None or not 0 < dollars <= MAX_PURCHASE_DOLLARS:
        raise InvalidFields([_AMOUNT_RULE])
    return dollars
