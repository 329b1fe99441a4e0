"""Sends webhooks that are due, at least once each, in as many processes as like.

Claims are small and follow each other as places become free, brand by brand; the claim counts the
attempt and leases the row for longer than an attempt takes. Whoever stops or dies leaves the lease
to run out, and the webhook is sent again under the same id.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from ltzd import telemetry
from ltzd.deliveries import attempts
from ltzd.deliveries.endpoints import EndpointSlots
from ltzd.deliveries.outcomes import OutcomeWriter
from ltzd.deliveries.rendering import SignedWebhook, WebhookRenderer
from ltzd.errors import DatabaseUnavailable
from ltzd.providers.brand_webhooks import MAX_IN_FLIGHT, TIMEOUT_SECONDS, BrandWebhooks
from ltzd.store.database import Pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.wakeups import WEBHOOKS, Wakeup, WakeupHub
from ltzd.store.webhooks import queue as webhooks
from ltzd.store.webhooks import records as webhook_records

log = structlog.get_logger()

LEASE = timedelta(seconds=1.5 * TIMEOUT_SECONDS)
"""Longer than an attempt with its outcome, and no longer: what a kill leaves waits for its end."""
_MOST_AT_ONCE = 100
_PAUSE_SECONDS = 0.5
_MEASURE_SECONDS = 10.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Sender:
    def __init__(
        self,
        pool: Pool,
        wakeups: WakeupHub,
        sealer: Sealer,
        http: BrandWebhooks,
        *,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._pool = pool
        self._news = wakeups.subscribe(WEBHOOKS)
        self._http = http
        self._now = now
        self._letters = WebhookRenderer(sealer)
        self._outcomes = OutcomeWriter(pool)
        self._endpoints = EndpointSlots(MAX_IN_FLIGHT, _MOST_AT_ONCE)
        self._wake = Wakeup()
        self._looks = True
        """Whether it is time to look through all brands."""

    async def run(self) -> None:
        """Until cancelled; what is under way then is sent again when its lease is over."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear())
            group.create_task(self._outcomes.run())
            group.create_task(self._measure())
            while True:
                for letter in await self._claimed():
                    self._endpoints.begin(letter.due.brand_id)
                    group.create_task(self._deliver(letter))
                telemetry.WEBHOOKS_IN_FLIGHT.set(self._endpoints.under_way)
                if not self._looks and not self._endpoints.free(self._now()):
                    await self._wake.wait()

    async def _hear(self) -> None:
        """Whatever was written or has come due."""
        while True:
            await self._news.wait()
            self._looks = True
            self._wake.notify()

    async def _claimed(self) -> list[SignedWebhook]:
        """While the database is away, none, after a pause."""
        try:
            async with transaction(self._pool) as connection:
                now = self._now()
                if self._looks:
                    self._looks = False
                    self._endpoints.found(await webhooks.brands_with_due(connection, now))
                asked = self._endpoints.free(now)
                if not asked:
                    return []
                claimed = await webhooks.claim(connection, asked, now, now + LEASE)
                self._endpoints.claimed(asked, Counter(due.brand_id for due in claimed))
                return await self._letters.written(connection, claimed, now)
        except DatabaseUnavailable as error:
            log.warning("webhooks.database_unavailable", reason=error.message)
            await asyncio.sleep(_PAUSE_SECONDS)
            self._looks = True
            return []

    async def _deliver(self, letter: SignedWebhook) -> None:
        brand = letter.due.brand_id
        answered = await attempts.made(self._http, letter, self._now)
        now = self._now()
        telemetry.WEBHOOK_ATTEMPTS.labels(answered.label).inc()
        if answered.error is None:
            telemetry.WEBHOOK_SECONDS.observe((now - letter.due.created_at).total_seconds())
            self._endpoints.succeeded(brand)
        else:
            self._endpoints.failed(brand, answered.status, answered.patience, now)
        self._outcomes.add(attempts.outcome_of(letter, answered, now))
        if self._endpoints.end(brand):
            self._wake.notify()

    async def _measure(self) -> None:
        while True:
            try:
                async with session(self._pool) as connection:
                    facts = await webhook_records.backlog(connection)
            except DatabaseUnavailable as error:
                log.warning("webhooks.not_measured", reason=error.message)
            else:
                telemetry.WEBHOOKS_PENDING.set(facts.pending)
                telemetry.WEBHOOKS_HELD.set(facts.held)
                telemetry.WEBHOOKS_OLDEST_SECONDS.set(facts.oldest_seconds or 0)
                telemetry.WEBHOOKS_OVERDUE_SECONDS.set(facts.overdue_seconds)
                telemetry.WEBHOOK_ENDPOINTS_DISABLED.set(facts.disabled_endpoints)
            await asyncio.sleep(_MEASURE_SECONDS)
