"""A brand's own limits: the window of a moment, and the refusals in it."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.errors import BudgetExhausted, RateLimited, RewardTooLarge
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.event_handler.brand_limits import (
    budget_of,
    refuse_large_reward,
    refuse_more_wallets,
    refuse_over_budget,
    wallets_of,
)

NOON = datetime(2026, 3, 10, 12, 30, 15, tzinfo=UTC)


def a_brand(**changes: Any) -> Brand:
    required = {"id": "0x" + "ab" * 20, "name": "Demo", "domains": ("shop.example",)}
    return Brand.model_validate(required | changes)


def day_at(zone: str, now: datetime) -> tuple[datetime, datetime]:
    quota = budget_of(a_brand(daily_mint_budget=1, time_zone=zone), now)
    assert quota is not None
    return quota.start, quota.end


def test_a_brand_without_limits_has_no_quotas() -> None:
    assert budget_of(a_brand(), NOON) is None
    assert wallets_of(a_brand(), NOON) is None
    refuse_over_budget(None, 10**12, 10**12, NOON)
    refuse_more_wallets(None, 10**12, NOON)
    refuse_large_reward(a_brand(), "form_submit", 10**12)


@pytest.mark.parametrize(
    ("zone", "now", "start", "hours"),
    [
        ("UTC", "2026-03-10T12:30", "2026-03-10T00:00", 24),
        ("Asia/Tokyo", "2026-03-10T15:00", "2026-03-10T15:00", 24),
        ("Asia/Tokyo", "2026-03-10T14:59", "2026-03-09T15:00", 24),
        # Clocks go forward in one night and back in another.
        ("Europe/Berlin", "2026-03-29T12:00", "2026-03-28T23:00", 23),
        ("Europe/Berlin", "2026-10-25T12:00", "2026-10-24T22:00", 25),
        # Midnight itself is skipped.
        ("America/Sao_Paulo", "2018-11-04T12:00", "2018-11-04T03:00", 23),
        # Midnight comes twice: the hour between belongs to the day that it opens first.
        ("America/Havana", "2026-11-01T04:30", "2026-11-01T04:00", 25),
        ("America/Havana", "2026-11-01T05:30", "2026-11-01T04:00", 25),
    ],
)
def test_a_day_begins_at_the_brands_own_midnight(
    zone: str, now: str, start: str, hours: int
) -> None:
    begun, ended = day_at(zone, datetime.fromisoformat(now).replace(tzinfo=UTC))
    assert begun == datetime.fromisoformat(start).replace(tzinfo=UTC)
    assert ended - begun == timedelta(hours=hours)


MOMENTS = st.integers(946_684_800, 2_145_830_400).map(
    lambda seconds: datetime.fromtimestamp(seconds, UTC)
)
ZONES = st.sampled_from(sorted(zone for zone in available_timezones() if "/" in zone))


@given(ZONES, MOMENTS)
def test_days_hold_their_moments_and_join_without_gaps(zone: str, now: datetime) -> None:
    start, end = day_at(zone, now)
    assert start <= now < end
    assert end - start <= timedelta(hours=49)
    assert day_at(zone, start) == (start, end)
    assert day_at(zone, end - timedelta(microseconds=1)) == (start, end)
    assert day_at(zone, end)[0] == end
    assert now.astimezone(ZoneInfo(zone)).date() == local_date(zone, start, end)


def local_date(zone: str, start: datetime, end: datetime) -> date:
    """Returns the date at the middle of the day, far from any clock change."""
    return (start + (end - start) / 2).astimezone(ZoneInfo(zone)).date()


def test_an_hour_is_of_utc_whatever_the_brands_zone() -> None:
    quota = wallets_of(a_brand(max_new_wallets_per_hour=5, time_zone="Asia/Kathmandu"), NOON)
    assert quota is not None
    assert quota.start == NOON.replace(minute=0, second=0)
    assert quota.end == NOON.replace(hour=13, minute=0, second=0)


def test_the_budget_can_be_spent_exactly() -> None:
    quota = budget_of(a_brand(daily_mint_budget=100), NOON)
    refuse_over_budget(quota, 60, 40, NOON)
    refuse_over_budget(quota, 100, 0, NOON)
    refuse_over_budget(quota, 101, 0, NOON)  # the budget was lowered after it was spent
    with pytest.raises(BudgetExhausted) as caught:
        refuse_over_budget(quota, 60, 41, NOON)
    assert caught.value.details["reason"] == "budget_exhausted"
    assert caught.value.details["retryAfterSeconds"] == 11 * 3600 + 29 * 60 + 45


def test_new_wallets_stop_at_their_number_until_the_hour_ends() -> None:
    quota = wallets_of(a_brand(max_new_wallets_per_hour=5), NOON)
    refuse_more_wallets(quota, 4, NOON)
    with pytest.raises(RateLimited) as caught:
        refuse_more_wallets(quota, 5, NOON)
    assert caught.value.details["reason"] == "rate_limited"
    assert caught.value.details["retryAfterSeconds"] == 29 * 60 + 45
    assert caught.value.details["limit"] == 5


def test_the_reported_wait_ends_in_the_next_window() -> None:
    now = NOON.replace(minute=59, second=59, microsecond=999_999)
    quota = wallets_of(a_brand(max_new_wallets_per_hour=5), now)
    assert quota is not None
    assert quota.seconds_left(now) == 1


def test_a_reward_above_the_brands_largest_names_field_and_rule() -> None:
    brand = a_brand(max_reward_per_event=100)
    refuse_large_reward(brand, "purchase", 100)
    with pytest.raises(RewardTooLarge) as caught:
        refuse_large_reward(brand, "purchase", 101)
    assert caught.value.details["errors"] == [
        "eventType: purchase would earn 101 LTZ, above the brand's 100 an event"
    ]
