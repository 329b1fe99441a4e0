"""The retry schedule of webhooks, the meaning of an endpoint's answer, and its concurrency.

The schedule is that of Standard Webhooks: ten attempts over three days. An endpoint may ask for a
longer pause (Retry-After), but not for a shorter one.
"""

from datetime import datetime, timedelta
from enum import Enum
from typing import Final

import msgspec
from msgspec.structs import replace

from ltzd.rules.http_dates import parse_http_date

PAUSES: Final = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
"""The pauses after the first attempt, after the second, and so on."""
ATTEMPTS: Final = len(PAUSES) + 1
JITTER: Final = 0.1
"""Pauses are longer by up to this share, so that webhooks that failed together spread out."""
LONGEST_RETRY_AFTER: Final = timedelta(hours=24)
LONGEST_REST: Final = timedelta(minutes=5)
"""How long an endpoint's Retry-After holds up the brand's other webhooks."""
FEW_SLOTS: Final = 4
"""The webhooks that a new endpoint receives at a time."""
MOST_SLOTS: Final = 32
"""The most webhooks that an endpoint receives at a time, if it answers quickly."""
QUICK: Final = timedelta(seconds=1)
"""A quick answer comes within this time."""

_GONE = 410
_OVERLOADED = (429, 503)


class DeliveryVerdict(Enum):
    """`GONE`: the endpoint wants no more webhooks at all."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"


def verdict_of(status: int) -> DeliveryVerdict:
    """A redirect counts as a failure: the brand did not configure its target."""
    if 200 <= status < 300:
        return DeliveryVerdict.DELIVERED
    return DeliveryVerdict.GONE if status == _GONE else DeliveryVerdict.FAILED


def retry_after(text: str | None, now: datetime) -> timedelta | None:
    """The pause that a Retry-After header asks for, or None if it is missing or malformed.

    The header has seconds or an HTTP date.
    """
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        # int() is slow for very long numbers.
        seconds = int(text) if len(text) < 9 else LONGEST_RETRY_AFTER.total_seconds()
        return min(timedelta(seconds=seconds), LONGEST_RETRY_AFTER)
    until = parse_http_date(text)
    return None if until is None else min(max(until - now, timedelta(0)), LONGEST_RETRY_AFTER)


def next_attempt(
    attempts: int, failed_at: datetime, chance: float, asked_for: timedelta | None
) -> datetime | None:
    """When the next attempt is due after `attempts`, or None after the last one.

    `chance` from 0 to 1 decides the jitter. `asked_for` is the endpoint's Retry-After.
    """
    if attempts >= ATTEMPTS:
        return None
    pause = PAUSES[max(attempts, 1) - 1] * (1 + JITTER * chance)
    return failed_at + max(pause, asked_for or timedelta(0))


class DeliverySlots(msgspec.Struct, frozen=True):
    """How many webhooks may be sent to one endpoint at a time, and until when none may be."""

    limit: int = FEW_SLOTS
    rests_until: datetime | None = None

    def free(self, in_progress: int, now: datetime) -> int:
        if self.rests_until is not None and now < self.rests_until:
            return 0
        return max(0, self.limit - in_progress)

    def after_success(self, took: timedelta) -> "DeliverySlots":
        """Twice as many slots below FEW_SLOTS; above it one more after a quick answer, and half as
        many after a slow one."""
        if self.limit < FEW_SLOTS:
            return DeliverySlots(min(self.limit * 2, FEW_SLOTS))
        if took <= QUICK:
            return DeliverySlots(min(self.limit + 1, MOST_SLOTS))
        return DeliverySlots(max(self.limit // 2, FEW_SLOTS))

    def after_failure(
        self, status: int | None, asked_for: timedelta | None, now: datetime
    ) -> "DeliverySlots":
        """One slot, and none before the end of a pause that an overloaded endpoint asks for."""
        if status in _OVERLOADED and asked_for is not None:
            return DeliverySlots(1, now + min(asked_for, LONGEST_REST))
        return replace(self, limit=1)
