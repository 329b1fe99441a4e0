"""What leaderboards rank by, and over which days (spec 4.4).

Weeks begin on Monday; weeks and months are those of the calendar in the brand's time zone.
"""

from datetime import date, timedelta
from typing import Literal

Metric = Literal["ltz_earned", "activity", "streak"]
Period = Literal["week", "month", "all"]

ALL_TIME = date(1970, 1, 1)
"""What stands for the first day of the period that has none; the driver writes `date.min` as
-infinity."""


def first_day(period: Period, day: date) -> date:
    """Of the week or month that this day is in: it names the period."""
    match period:
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "all":
            return ALL_TIME
