"""The dates of HTTP's headers (RFC 9110, 5.6.7), such as Retry-After's."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def parse_http_date(text: str) -> datetime | None:
    """The time that the text names, or None for no date. A date without a zone is in UTC."""
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
