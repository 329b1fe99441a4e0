"""The metrics and periods of leaderboards (spec 4.4).

Weeks begin on Monday. Weeks and months are calendar periods of the brand's time zone.
"""

from datetime import date, timedelta
from typing import Literal

Metric = Literal["ltz_earned", "activity", "streak"]
Period = Literal["week", "month", "all"]

ALL_TIME = date(1970, 1, 1)
"""The first day of the period `all`. Not `date.min`, which the driver writes as -infinity."""


def first_day(period: Period, day: date) -> date:
    """The first day of the week or month that contains `day`; it identifies the period."""
    match period:
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "all":
            return ALL_TIME
