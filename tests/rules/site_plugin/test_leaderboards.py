"""Periods of leaderboards are weeks from Monday, months, and all time."""

from datetime import date, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.site_plugin.leaderboards import ALL_TIME, Period, first_day


@pytest.mark.parametrize(
    ("day", "week", "month"),
    [
        (date(2026, 3, 1), date(2026, 2, 23), date(2026, 3, 1)),
        (date(2026, 3, 2), date(2026, 3, 2), date(2026, 3, 1)),
        (date(2025, 12, 31), date(2025, 12, 29), date(2025, 12, 1)),
        (date(2026, 1, 1), date(2025, 12, 29), date(2026, 1, 1)),
        (date(2024, 2, 29), date(2024, 2, 26), date(2024, 2, 1)),
    ],
)
def test_a_day_is_in_the_week_of_its_monday_and_in_the_month_of_its_first(
    day: date, week: date, month: date
) -> None:
    assert (first_day("week", day), first_day("month", day)) == (week, month)
    assert first_day("all", day) == ALL_TIME


@given(st.dates(date(1970, 1, 8), date(9999, 12, 31)), st.sampled_from(get_args(Period)))
def test_the_first_day_of_a_period_is_in_it_and_the_day_before_is_not(
    day: date, period: Period
) -> None:
    first = first_day(period, day)
    assert first <= day
    assert first_day(period, first) == first
    if period != "all":
        assert first_day(period, first - timedelta(days=1)) < first
