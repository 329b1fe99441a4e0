"""Streaks of check-ins at a brand's site, and their rewards.

Days are calendar days of the brand's time zone (`brand_limits.local_day`). A streak up to yesterday
continues with today's check-in. A milestone stays reached after the streak ends.
"""

from collections.abc import Collection
from datetime import date, timedelta
from decimal import Decimal

import msgspec

from ltzd.rules.brands.configuration import Site

_ONE_DAY = timedelta(days=1)


class Streak(msgspec.Struct, frozen=True):
    """`days` in a row up to `last_day`; `best` is the length of the longest streak so far."""

    days: int
    last_day: date
    best: int


class CheckIn(msgspec.Struct, frozen=True):
    """The streak after a check-in, and the reward in whole LTZ."""

    streak: Streak
    reward: int


class Milestone(msgspec.Struct, frozen=True):
    """`bonus` is in whole LTZ."""

    days: int
    bonus: int


class StreakSummary(msgspec.Struct, frozen=True):
    """A streak as its owner sees it (spec 2.9)."""

    current_streak: int
    multiplier: Decimal
    next_milestone: Milestone | None
    unclaimed_milestones: tuple[Milestone, ...]


def extend_streak(before: Streak | None, day: date, site: Site) -> CheckIn | None:
    """Return None if the day is claimed already.

    A day before the last one counts as claimed: after a change of the brand's time zone no day
    counts twice.
    """
    if before is not None and day <= before.last_day:
        return None
    goes_on = before is not None and day - before.last_day == _ONE_DAY
    days = before.days + 1 if before is not None and goes_on else 1
    best = days if before is None else max(days, before.best)
    return CheckIn(Streak(days, day, best), site.reward_of(days))


def own_days_after(check_in: CheckIn, own_days: int) -> int:
    """The member's own days in a row, with this check-in.

    `own_days` are the member's days up to the streak's last day. Other members with the same wallet
    have the other days of the streak.
    """
    return min(own_days + 1, check_in.streak.days)


def own_reward(check_in: CheckIn, own_days: int, site: Site) -> int:
    """The part of the reward that the member's own days in a row account for."""
    return min(check_in.reward, site.reward_of(own_days))


def summarize(
    streak: Streak | None, today: date, site: Site, claimed: Collection[int]
) -> StreakSummary:
    """`claimed` are the days of claimed milestones. Without a current streak, the multiplier is
    that of a first day."""
    best = 0 if streak is None else streak.best
    current = 0 if streak is None or today - streak.last_day > _ONE_DAY else streak.days
    milestones = [Milestone(*each) for each in sorted(site.milestones.items())]
    return StreakSummary(
        current_streak=current,
        multiplier=site.multiplier_of(max(1, current)),
        next_milestone=next((each for each in milestones if each.days > best), None),
        unclaimed_milestones=tuple(
            each for each in milestones if each.days <= best and each.days not in claimed
        ),
    )
