"""A brand's own limits: LTZ a day, new wallets an hour, LTZ an event (docs/brands.md).

A day lasts from midnight to midnight in the brand's time zone, an hour is an hour of UTC. Amounts
are in whole LTZ. A limit of 0 means no limit.
"""

from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import Enum
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from ltzd.errors import BudgetExhausted, RateLimited, RewardTooLarge
from ltzd.rules.brands.configuration import Brand, EventRule

BUDGET_REASON = "budget_exhausted"
RATE_REASON = "rate_limited"

_ONE_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)


class QuotaKind(Enum):
    """The counted quantities, with the values that the database stores."""

    LTZ_PER_DAY = "ltz_per_day"
    WALLETS_PER_HOUR = "wallets_per_hour"


class Quota(msgspec.Struct, frozen=True):
    """A limit in the current window. `start` identifies the window; the next begins at `end`."""

    kind: QuotaKind
    maximum: int
    start: datetime
    end: datetime

    def seconds_left(self, now: datetime) -> int:
        return max(1, -(-(self.end - now) // _ONE_SECOND))


def budget_of(brand: Brand, now: datetime) -> Quota | None:
    """Return None if the brand has no budget."""
    if brand.daily_mint_budget == 0:
        return None
    start, end = _day(local_day(now, brand.time_zone), brand.time_zone)
    return Quota(QuotaKind.LTZ_PER_DAY, brand.daily_mint_budget, start, end)


def wallets_of(brand: Brand, now: datetime) -> Quota | None:
    """Return None if the brand does not limit new wallets."""
    if brand.max_new_wallets_per_hour == 0:
        return None
    start = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return Quota(QuotaKind.WALLETS_PER_HOUR, brand.max_new_wallets_per_hour, start, start + _HOUR)


def refuse_over_budget(quota: Quota | None, spent: int, ltz: int, now: datetime) -> None:
    """Raises BudgetExhausted, but never for an event without a reward."""
    if quota is None or ltz == 0 or spent + ltz <= quota.maximum:
        return
    seconds = quota.seconds_left(now)
    raise BudgetExhausted(
        "Budget exhausted",
        message=f"Today's budget is spent; the brand's next day begins in {seconds} seconds",
        reason=BUDGET_REASON,
        retryAfterSeconds=seconds,
    )


def refuse_more_wallets(quota: Quota | None, made: int, now: datetime) -> None:
    if quota is None or made < quota.maximum:
        return
    raise rate_limited("new wallets an hour", quota.maximum, quota.seconds_left(now))


def rate_limited(what: str, limit: int, seconds: int) -> RateLimited:
    return RateLimited(
        "Rate limit exceeded",
        message=f"This brand allows {limit} {what}; try again in {seconds} seconds",
        reason=RATE_REASON,
        limit=limit,
        retryAfterSeconds=seconds,
    )


def refuse_large_reward(brand: Brand, event_type: str, ltz: int) -> None:
    """Raises RewardTooLarge, which is permanent: a reward this large is a mistake or a theft."""
    most = brand.max_reward_per_event
    if most and ltz > most:
        fault = f"eventType: {event_type} would earn {ltz} LTZ, above the brand's {most} an event"
        raise RewardTooLarge("Reward too large", errors=[fault])


def refuse_unmintable_reward(rule: EventRule, ltz: int, capacity: int | None) -> None:
    """Raises RewardTooLarge for a reward that would wait until the mint limit is raised.

    `capacity` is the most that the mint limit can ever cover, or None if that covers `ltz`.
    """
    if capacity is None:
        return
    field = "metadata.amount" if rule.reward_per_dollar is not None else "eventType"
    fault = f"{field}: {rule.type} would earn {ltz} LTZ, above the {capacity} that can be minted"
    raise RewardTooLarge("Reward too large", errors=[fault])


def local_day(now: datetime, zone: str) -> date:
    """The calendar day in the named time zone."""
    return now.astimezone(_zone(zone)).date()


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _day(today: date, zone: str) -> tuple[datetime, datetime]:
    return _midnight(today, zone), _midnight(today + timedelta(days=1), zone)


def _midnight(day: date, zone: str) -> datetime:
    """Where clocks skip midnight, the moment of the skip. Where midnight comes twice, the first."""
    local = datetime(day.year, day.month, day.day, tzinfo=_zone(zone))
    return local.astimezone(UTC)
