"""Streaks: examples, daylight-saving days, and a naive model that forgets
nothing and counts everything again from the list of days.
"""

from bisect import bisect_right
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ltzd.rules.brands.configuration import Site
from ltzd.rules.event_handler.brand_limits import local_day
from ltzd.rules.site_plugin.streaks import (
    CheckIn,
    Milestone,
    Streak,
    StreakSummary,
    extend_streak,
    own_days_after,
    own_reward,
    summarize,
)

DAY = date(2026, 3, 10)
ONE_DAY = timedelta(days=1)


def a_site(**changes: Any) -> Site:
    fields: dict[str, Any] = {
        "hosts": ("site.example",),
        "checkin_reward": 10,
        "multipliers": {1: Decimal(1), 3: Decimal("1.55"), 5: Decimal(2)},
        "milestones": {5: 70, 2: 20, 3: 30},
    }
    return Site.model_validate(fields | changes)


SITE = a_site()


def after(*days: date, site: Site = SITE) -> Streak | None:
    """The streak after check-ins on these days."""
    streak = None
    for day in days:
        claim = extend_streak(streak, day, site)
        assert claim is not None, day
        streak = claim.streak
    return streak


def days(count: int, first: date = DAY) -> list[date]:
    return [first + number * ONE_DAY for number in range(count)]


def test_the_first_check_in_begins_a_streak_of_one() -> None:
    assert extend_streak(None, DAY, SITE) == CheckIn(Streak(1, DAY, 1), 10)


def test_days_in_a_row_make_a_streak_whose_rewards_grow_and_are_rounded_down() -> None:
    rewards, streak = [], None
    for day in days(6):
        claim = extend_streak(streak, day, SITE)
        assert claim is not None
        streak = claim.streak
        rewards.append(claim.reward)
    assert streak == Streak(6, DAY + 5 * ONE_DAY, 6)
    assert rewards == [10, 10, 15, 15, 20, 20]


def test_a_year_and_a_leap_day_are_days_like_others() -> None:
    first = date(2027, 12, 30)
    assert after(*days(80, first)) == Streak(80, date(2028, 3, 18), 80)


def test_a_missed_day_begins_again_and_the_best_stays() -> None:
    streak = after(*days(4), DAY + 5 * ONE_DAY)
    assert streak == Streak(1, DAY + 5 * ONE_DAY, 4)
    assert after(*days(4), *days(6, DAY + 5 * ONE_DAY)) == Streak(6, DAY + 10 * ONE_DAY, 6)


@pytest.mark.parametrize("back", [0, 1, 40])
def test_a_day_that_is_not_after_the_last_one_is_claimed(back: int) -> None:
    """An earlier day comes when the brand's time zone is moved to the west."""
    assert extend_streak(after(*days(3)), DAY + 2 * ONE_DAY - back * ONE_DAY, SITE) is None


def test_a_site_without_rewards_keeps_streaks_too() -> None:
    site = a_site(checkin_reward=0)
    assert extend_streak(None, DAY, site) == CheckIn(Streak(1, DAY, 1), 0)
    free = a_site(multipliers={1: Decimal(0)})
    assert extend_streak(None, DAY, free) == CheckIn(Streak(1, DAY, 1), 0)


def test_before_the_first_day_the_summary_has_the_initial_multiplier() -> None:
    assert summarize(None, DAY, SITE, ()) == StreakSummary(0, Decimal(1), Milestone(2, 20), ())
    started = a_site(multipliers={1: Decimal("1.5")})
    assert summarize(None, DAY, started, ()).multiplier == Decimal("1.5")


@pytest.mark.parametrize(
    ("later", "current", "multiplier"), [(0, 4, "1.55"), (1, 4, "1.55"), (2, 0, "1"), (300, 0, "1")]
)
def test_a_streak_is_shown_until_a_day_was_missed(
    later: int, current: int, multiplier: str
) -> None:
    streak = after(*days(4))
    assert streak is not None
    seen = summarize(streak, streak.last_day + later * ONE_DAY, SITE, ())
    assert (seen.current_streak, seen.multiplier) == (current, Decimal(multiplier))


def test_a_streak_of_a_day_that_is_still_to_come_goes_on() -> None:
    """The brand's time zone was moved to the west."""
    assert summarize(after(*days(4)), DAY, SITE, ()).current_streak == 4


def test_milestones_stay_claimable_after_the_streak_is_lost() -> None:
    lost = after(*days(3), DAY + 9 * ONE_DAY)
    today = DAY + 9 * ONE_DAY
    assert summarize(lost, today, SITE, ()).unclaimed_milestones == (
        Milestone(2, 20),
        Milestone(3, 30),
    )
    assert summarize(lost, today, SITE, {3}).unclaimed_milestones == (Milestone(2, 20),)
    assert summarize(lost, today, SITE, {2, 3, 9}).unclaimed_milestones == ()
    assert summarize(lost, today, SITE, ()).next_milestone == Milestone(5, 70)
    assert summarize(after(*days(5)), today, SITE, ()).next_milestone is None


# --- calendars ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "moment", "day"),
    [
        ("UTC", "2026-03-10T23:59:59.999999", "2026-03-10"),
        ("UTC", "2026-03-11T00:00:00", "2026-03-11"),
        ("Asia/Tokyo", "2026-03-10T15:00", "2026-03-11"),
        ("Pacific/Kiritimati", "2026-03-10T10:00", "2026-03-11"),
        ("Etc/GMT+12", "2026-03-10T11:59", "2026-03-09"),
        # The clocks go forward: a day of 23 hours.
        ("Europe/Berlin", "2026-03-28T22:59", "2026-03-28"),
        ("Europe/Berlin", "2026-03-28T23:00", "2026-03-29"),
        ("Europe/Berlin", "2026-03-29T21:59", "2026-03-29"),
        ("Europe/Berlin", "2026-03-29T22:00", "2026-03-30"),
        ("America/New_York", "2026-03-09T03:59", "2026-03-08"),
        # Back: a day of 25 hours.
        ("America/New_York", "2026-11-01T04:00", "2026-11-01"),
        ("America/New_York", "2026-11-02T04:59", "2026-11-01"),
        ("America/New_York", "2026-11-02T05:00", "2026-11-02"),
        # By half an hour.
        ("Australia/Lord_Howe", "2026-04-04T13:00", "2026-04-05"),
        ("Australia/Lord_Howe", "2026-04-05T13:29", "2026-04-05"),
        ("Australia/Lord_Howe", "2026-04-05T13:30", "2026-04-06"),
        # Midnight is skipped, and comes twice.
        ("America/Sao_Paulo", "2018-11-04T02:59", "2018-11-03"),
        ("America/Sao_Paulo", "2018-11-04T03:00", "2018-11-04"),
        ("America/Havana", "2026-11-01T04:00", "2026-11-01"),
        ("America/Havana", "2026-11-01T05:30", "2026-11-01"),
    ],
)
def test_a_moment_has_the_day_of_the_people_there(zone: str, moment: str, day: str) -> None:
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    assert local_day(at, zone) == date.fromisoformat(day)


ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",
    "America/Nuuk",
    "Asia/Beirut",
    "Africa/Cairo",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Kiritimati",
    "Pacific/Chatham",
    "Etc/GMT+12",
]
YEAR = datetime(2026, 1, 1, tzinfo=UTC)
_STEP = timedelta(minutes=15)
"""Midnights of these zones fall on quarters of an hour."""


@lru_cache
def midnights(zone: str) -> list[datetime]:
    """The start of each of the zone's days, found by stepping through more than a year."""
    clock, moment, starts = ZoneInfo(zone), YEAR - 2 * ONE_DAY, []
    day = moment.astimezone(clock).date()
    while moment < YEAR + 450 * ONE_DAY:
        moment += _STEP
        if (later := moment.astimezone(clock).date()) != day:
            starts.append(moment)
            day = later
    return starts


class Naive:
    """The specification's rules, over the numbers of all claimed days."""

    def __init__(self, zone: str, site: Site) -> None:
        self.midnights = midnights(zone)
        self.site = site
        self.claimed_days: set[int] = set()
        self.claimed_milestones: set[int] = set()

    def number(self, moment: datetime) -> int:
        return bisect_right(self.midnights, moment)

    def length(self, day: int) -> int:
        """The number of claimed days in a row up to this day."""
        length = 0
        while day - length in self.claimed_days:
            length += 1
        return length

    def multiplier(self, length: int) -> Decimal:
        best = Decimal(1)
        for reached, multiplier in sorted(self.site.multipliers.items()):
            if reached <= length:
                best = multiplier
        return best

    def check_in(self, moment: datetime) -> int | None:
        today = self.number(moment)
        if today in self.claimed_days:
            return None
        self.claimed_days.add(today)
        return int(self.site.checkin_reward * self.multiplier(self.length(today)))

    def summarize(self, moment: datetime) -> StreakSummary:
        today = self.number(moment)
        current = self.length(today) or self.length(today - 1)
        best = max(map(self.length, self.claimed_days), default=0)
        reached = [days for days in self.site.milestones if days <= best]
        ahead = [days for days in self.site.milestones if days > best]
        unclaimed = sorted(set(reached) - self.claimed_milestones)
        return StreakSummary(
            current,
            self.multiplier(current or 1),
            Milestone(min(ahead), self.site.milestones[min(ahead)]) if ahead else None,
            tuple(Milestone(days, self.site.milestones[days]) for days in unclaimed),
        )


LENGTHS = st.integers(1, 9)
SITES = st.builds(
    a_site,
    checkin_reward=st.sampled_from([0, 1, 3, 10, 999]),
    multipliers=st.dictionaries(LENGTHS, st.decimals(0, 5, places=2), max_size=4),
    milestones=st.dictionaries(LENGTHS, st.integers(1, 500), max_size=4),
)
# Mostly about a day apart, so that streaks grow and skipped or repeated hours matter.
STEPS = st.sampled_from([0.0, 0.000001, 0.9, 22.9, 23.0, 24.0, 25.0, 25.1, 47.0, 49.0]) | st.floats(
    0, 60
)
# From any time of the year, and from days before the clocks change.
BEGINNINGS = st.floats(0, 300 * 24) | st.sampled_from(
    [
        24.0 * ((datetime(2026, month, day, tzinfo=UTC) - YEAR).days)
        for month, day in ((3, 5), (3, 26), (4, 2), (4, 21), (10, 22), (10, 29))
    ]
)


Steps = list[tuple[float, str]]
"""Hours since the step before, and the action."""


@settings(max_examples=120)
@given(
    zone=st.sampled_from(ZONES),
    site=SITES,
    begin=BEGINNINGS,
    steps=st.lists(
        st.tuples(STEPS, st.sampled_from(["check in", "check in", "claim"])), min_size=1
    ),
)
@example("Europe/Berlin", SITE, 24.0 * 86 + 22.5, [(23.5, "check in")] * 6)
@example("America/Havana", SITE, 24.0 * 303 + 3.5, [(1.0, "check in"), (1.0, "check in")])
def test_a_streak_equals_the_model_for_any_check_ins(
    zone: str, site: Site, begin: float, steps: Steps
) -> None:
    naive, streak, moment = Naive(zone, site), None, YEAR + timedelta(hours=begin)
    for hours, act in steps:
        moment += timedelta(hours=hours)
        today = local_day(moment, zone)
        if act == "check in":
            claim = extend_streak(streak, today, site)
            assert (None if claim is None else claim.reward) == naive.check_in(moment)
            streak = streak if claim is None else claim.streak
        seen = summarize(streak, today, site, naive.claimed_milestones)
        assert seen == naive.summarize(moment)
        if act == "claim" and seen.unclaimed_milestones:
            naive.claimed_milestones.add(seen.unclaimed_milestones[-1].days)


# --- several members ----------------------------------------------------------------------------


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_member_earns_what_his_own_days_in_a_row_would_have_earned(mine: list[bool]) -> None:
    """The wallet's other member checks in on the other days."""
    site = Site(
        hosts=("site.example",),
        checkin_reward=10,
        multipliers={1: Decimal(1), 3: Decimal("1.5"), 7: Decimal(2)},
    )
    streak, own_days, alone = None, 0, 0
    for number, is_mine in enumerate(mine):
        check_in = extend_streak(streak, date(2026, 3, 1) + timedelta(days=number), site)
        assert check_in is not None
        streak = check_in.streak
        own_days = own_days_after(check_in, own_days) if is_mine else 0
        alone = alone + 1 if is_mine else 0
        assert own_days == alone
        if is_mine:
            assert own_reward(check_in, own_days, site) == site.reward_of(alone) <= check_in.reward


def test_a_days_own_share_is_never_more_than_its_reward() -> None:
    falling = Site(
        hosts=("site.example",), checkin_reward=10, multipliers={1: Decimal(3), 2: Decimal(1)}
    )
    check_in = extend_streak(Streak(1, date(2026, 3, 1), 1), date(2026, 3, 2), falling)
    assert check_in is not None
    assert own_reward(check_in, 1, falling) == check_in.reward == 10
