"""One attempt to deliver a webhook: the request, and what its answer means for the webhook."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
import structlog

from ltzd import telemetry
from ltzd.deliveries.rendering import SignedWebhook
from ltzd.providers.brand_webhooks import BrandWebhooks
from ltzd.providers.outbound.guarded_http import AddressRefused, RequestFailed
from ltzd.rules.webhooks import DeliveryVerdict, next_attempt, retry_after, verdict_of
from ltzd.store.webhooks.queue import DeliveryOutcome

log = structlog.get_logger()


class AttemptResult(msgspec.Struct, frozen=True):
    """`label` labels the metric. `error` holds no secret: logs and the webhook's row keep it."""

    label: str
    error: str | None
    status: int | None = None
    retry_after: timedelta | None = None
    """The endpoint's header Retry-After."""


async def deliver(
    http: BrandWebhooks, webhook: SignedWebhook, now: Callable[[], datetime]
) -> AttemptResult:
    """Post the webhook once. Never raises: an unexpected fault fails this attempt only."""
    try:
        return await _post(http, webhook, now)
    except AddressRefused as error:
        return AttemptResult("refused", error.reason)
    except RequestFailed as error:
        return AttemptResult("failed", error.reason)
    except Exception as error:
        telemetry.WEBHOOK_ERRORS.inc()
        log.exception("webhook.attempt_broke", webhook=str(webhook.due.id))
        return AttemptResult("failed", f"a fault of ltzd ({type(error).__name__})")


async def _post(
    http: BrandWebhooks, webhook: SignedWebhook, now: Callable[[], datetime]
) -> AttemptResult:
    answer = await http.post(webhook.message, webhook.secrets, now())
    verdict = verdict_of(answer.status)
    if verdict is DeliveryVerdict.DELIVERED:
        return AttemptResult(verdict.value, None, answer.status)
    wait = retry_after(answer.retry_after, now())
    return AttemptResult(verdict.value, f"status {answer.status}", answer.status, wait)


def outcome_of(webhook: SignedWebhook, result: AttemptResult, now: datetime) -> DeliveryOutcome:
    """Decide whether the webhook is delivered, tried again later, or exhausted."""
    due = webhook.due
    if result.error is None:
        return DeliveryOutcome(due, now, "delivered", now, result.status, None)
    chance = random.random()  # noqa: S311 - spreads attempts over time
    next_at = next_attempt(due.attempt, now, chance, result.retry_after)
    disable_reason, since = None, None
    if next_at is None:
        disable_reason, since = "nothing arrived for three days", due.created_at
    if result.label == DeliveryVerdict.GONE.value:
        disable_reason, since = "it answered 410", None
    return DeliveryOutcome(
        due,
        now,
        "exhausted" if next_at is None else "pending",
        next_at or now,
        result.status,
        result.error,
        disable_reason,
        since,
    )
