"""The time that answers show."""

from datetime import UTC, datetime

from ltzd.values import iso


def timestamp() -> str:
    return iso(datetime.now(UTC))
