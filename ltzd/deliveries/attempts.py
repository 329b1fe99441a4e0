"""One attempt: post, judge the answer, and say what becomes of the webhook."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from ltzd import telemetry
from ltzd.deliveries.rendering import SignedWebhook
from ltzd.providers.brand_webhooks import BrandWebhooks
from ltzd.providers.outbound.guarded_http import AddressRefused, RequestFailed
from ltzd.rules.webhooks import DeliveryVerdict, next_attempt, retry_after, verdict_of
from ltzd.store.webhooks.queue import DeliveryOutcome

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """`label` is the metric's word; `error` is fit for a log and for the webhook's row."""

    label: str
    error: str | None
    status: int | None = None
    patience: timedelta | None = None
    """What the endpoint asked for by Retry-After."""


async def made(
    http: BrandWebhooks, letter: SignedWebhook, now: Callable[[], datetime]
) -> AttemptResult:
    """Never raises: a fault of our own is a failure of this attempt, not of the next webhook's."""
    try:
        return await _posted(http, letter, now)
    except AddressRefused as error:
        return AttemptResult("refused", error.reason)
    except RequestFailed as error:
        return AttemptResult("failed", error.reason)
    except Exception as error:
        telemetry.WEBHOOK_ERRORS.inc()
        log.exception("webhook.attempt_broke", webhook=str(letter.due.id))
        return AttemptResult("failed", f"a fault of ltzd ({type(error).__name__})")


async def _posted(
    http: BrandWebhooks, letter: SignedWebhook, now: Callable[[], datetime]
) -> AttemptResult:
    answer = await http.post(letter.message, letter.secrets, now())
    verdict = verdict_of(answer.status)
    if verdict is DeliveryVerdict.DELIVERED:
        return AttemptResult(verdict.value, None, answer.status)
    patience = retry_after(answer.retry_after, now())
    return AttemptResult(verdict.value, f"status {answer.status}", answer.status, patience)


def outcome_of(letter: SignedWebhook, answered: AttemptResult, now: datetime) -> DeliveryOutcome:
    due = letter.due
    if answered.error is None:
        return DeliveryOutcome(due, now, "delivered", now, answered.status, None)
    chance = random.random()  # noqa: S311 - it only spreads attempts
    next_at = next_attempt(due.attempt, now, chance, answered.patience)
    closes, since = None, None
    if next_at is None:
        closes, since = "nothing arrived for three days", due.created_at
    if answered.label == DeliveryVerdict.GONE.value:
        closes, since = "it answered 410", None
    return DeliveryOutcome(
        due,
        now,
        "exhausted" if next_at is None else "pending",
        next_at or now,
        answered.status,
        answered.error,
        closes,
        since,
    )
