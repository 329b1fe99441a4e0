"""When a webhook is sent again, what an answer means, and how many a brand gets at a time.

The schedule is that of Standard Webhooks: ten attempts over three days. An endpoint may ask for
more patience (Retry-After), never for less.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

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
"""After the first attempt, after the second, and so on."""
ATTEMPTS: Final = len(PAUSES) + 1
JITTER: Final = 0.1
"""A pause is longer by up to this part, so that what failed together does not come together."""
LONGEST_RETRY_AFTER: Final = timedelta(hours=24)
LONGEST_REST: Final = timedelta(minutes=5)
"""How long an endpoint's Retry-After holds up the brand's other webhooks."""
MOST_SLOTS: Final = 4

_GONE = 410
_OVERLOADED = (429, 503)


class DeliveryVerdict(Enum):
    """`GONE`: the endpoint wants nothing more, of this webhook or any other."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"


def verdict_of(status: int) -> DeliveryVerdict:
    """A redirect is a failure: where it leads was not the brand's to say."""
    if 200 <= status < 300:
        return DeliveryVerdict.DELIVERED
    return DeliveryVerdict.GONE if status == _GONE else DeliveryVerdict.FAILED


def retry_after(text: str | None, now: datetime) -> timedelta | None:
    """What such a header asks for, in seconds or as an HTTP date; None if it says nothing."""
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        # More digits than any sensible number has: int() takes long for very many.
        seconds = int(text) if len(text) < 9 else LONGEST_RETRY_AFTER.total_seconds()
        return min(timedelta(seconds=seconds), LONGEST_RETRY_AFTER)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, IndexError, OverflowError):
        return None
    wanted = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - now
    return min(max(wanted, timedelta(0)), LONGEST_RETRY_AFTER)


def next_attempt(
    attempts: int, failed_at: datetime, chance: float, asked_for: timedelta | None
) -> datetime | None:
    """When the next attempt is due after so many; None when there is no other.

    `chance` from 0 to 1 decides the jitter.
    """
    if attempts >= ATTEMPTS:
        return None
    pause = PAUSES[max(attempts, 1) - 1] * (1 + JITTER * chance)
    return failed_at + max(pause, asked_for or timedelta(0))


@dataclass(frozen=True, slots=True)
class DeliverySlots:
    """How many webhooks may be on their way to one endpoint, and until when none may start."""

    limit: int = MOST_SLOTS
    rests_until: datetime | None = None

    def free(self, under_way: int, now: datetime) -> int:
        if self.rests_until is not None and now < self.rests_until:
            return 0
        return max(0, self.limit - under_way)

    def after_success(self) -> "DeliverySlots":
        return DeliverySlots(min(self.limit * 2, MOST_SLOTS))

    def after_failure(
        self, status: int | None, asked_for: timedelta | None, now: datetime
    ) -> "DeliverySlots":
        """One at a time; an endpoint that is overloaded and says for how long gets its rest."""
        if status in _OVERLOADED and asked_for is not None:
            return DeliverySlots(1, now + min(asked_for, LONGEST_REST))
        return replace(self, limit=1)
