"""Reads a time that a person types: a moment, or how long ago."""

import re
from datetime import UTC, datetime, timedelta

from ltzd.errors import Refused

_AGO = re.compile(r"(\d{1,6})\s*([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_moment(option_name: str, text: str, now: datetime) -> datetime:
    """A moment of ISO 8601, UTC by default, or an age such as 90m. Raises Refused."""
    try:
        return _moment(text, now)
    except OverflowError:
        raise Refused(f"{option_name} {text!r} is outside of the years 1 to 9999.") from None
    except ValueError:
        raise Refused(
            f"{option_name} {text!r} is neither a time such as 2025-01-31T12:00:00Z nor an age "
            "such as 90m, 12h or 7d."
        ) from None


def _moment(text: str, now: datetime) -> datetime:
    """Raises ValueError and OverflowError."""
    age = _AGO.fullmatch(text)
    if age is not None:
        return now - timedelta(**{_UNITS[age[2]]: int(age[1])})
    at = datetime.fromisoformat(text)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
