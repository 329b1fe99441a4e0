"""Sends due webhooks at least once each, in any number of processes.

Webhooks are claimed in small numbers, brand by brand, as slots become free. A claim counts the
attempt and leases the row for a few seconds; the lease is renewed until the attempt's outcome is
written. If the process stops, the lease runs out and the webhook is sent again under the same id.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import asyncpg
import structlog

from ltzd import telemetry
from ltzd.concurrency.loggable_errors import loggable, loggable_reason
from ltzd.concurrency.outages import Outage
from ltzd.deliveries import attempts
from ltzd.deliveries.database_time import DatabaseTime
from ltzd.deliveries.endpoints import EndpointSlots
from ltzd.deliveries.leases import LEASE, WebhookLeases
from ltzd.deliveries.outcomes import OutcomeWriter
from ltzd.deliveries.rendering import SHORTEST_DEFERRAL, SignedWebhook, WebhookRenderer
from ltzd.errors import DatabaseUnavailable
from ltzd.providers.brand_webhooks import MAX_IN_FLIGHT, BrandWebhooks
from ltzd.store.database import Pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.wakeups import WEBHOOKS, Wakeup, WakeupHub
from ltzd.store.webhooks import queue as webhooks
from ltzd.store.webhooks import records as webhook_records
from ltzd.values import Address, hex_of

log = structlog.get_logger()

_PAUSE_SECONDS = 0.5
_REFUSED_REST = timedelta(minutes=1)
"""The rest of a brand whose webhooks cannot be claimed, or not be rendered."""
_MEASURE_SECONDS = 10.0
_GAUGES = (
    telemetry.WEBHOOKS_PENDING,
    telemetry.WEBHOOKS_HELD,
    telemetry.WEBHOOKS_OLDEST_SECONDS,
    telemetry.WEBHOOKS_OVERDUE_SECONDS,
    telemetry.WEBHOOK_ENDPOINTS_DISABLED,
)
"""The gauges of the backlog, NaN while the database does not tell it."""


class Sender:
    """`now` replaces the database's time."""

    def __init__(
        self,
        pool: Pool,
        wakeups: WakeupHub,
        sealer: Sealer,
        http: BrandWebhooks,
        *,
        now: Callable[[], datetime] | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_at_once: int = 100,
    ) -> None:
        self._pool = pool
        self._news = wakeups.subscribe(WEBHOOKS)
        self._http = http
        self._time = DatabaseTime()
        self._now = now or self._time.now
        self._renderer = WebhookRenderer(sealer)
        self._leases = WebhookLeases()
        self._outcomes = OutcomeWriter(pool, self._leases)
        self._endpoints = EndpointSlots(max_in_flight, max_at_once)
        self._wake = Wakeup(None)
        self._outage = Outage("webhooks.database_unavailable", "webhooks.database_back")
        self._is_scan_due = True
        """True if other brands than those noted may have due webhooks."""

    async def run(self) -> None:
        """Send until cancelled. Deliveries in flight then are sent again once their lease ends."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_for_due())
            group.create_task(self._outcomes.run())
            group.create_task(self._measure())
            while True:
                for webhook in await self._claim():
                    self._endpoints.begin(webhook.due.brand_id)
                    group.create_task(self._deliver(webhook))
                telemetry.WEBHOOKS_IN_FLIGHT.set(self._endpoints.in_flight)
                if not self._is_scan_due and not self._endpoints.free(self._now()):
                    await self._wake.wait()

    async def _watch_for_due(self) -> None:
        """Wake `run` when a webhook is written, and regularly for those that have come due."""
        while True:
            await self._news.wait()
            self._is_scan_due = True
            self._wake.notify()

    async def _claim(self) -> Sequence[SignedWebhook]:
        """Return nothing, after a pause, while the database is unavailable."""
        try:
            await self._renew()
            await self._scan()
            now = self._now()
            wanted = self._endpoints.free(now)
            if not wanted:
                self._outage.over()
                return []
            rendered = await self._claim_of(wanted, now)
        except (DatabaseUnavailable, asyncpg.PostgresError) as error:
            self._outage.failed(loggable_reason(error))
            await asyncio.sleep(_PAUSE_SECONDS)
            self._is_scan_due = True
            return []
        self._outage.over()
        for webhook in rendered:
            self._leases.begin(webhook.due, now)
        return rendered

    async def _claim_of(
        self, wanted: Mapping[Address, int], now: datetime
    ) -> Sequence[SignedWebhook]:
        """Claim and render. If that fails for many brands, do it for each of them alone.

        A brand for which it fails alone rests. Raises DatabaseUnavailable.
        """
        try:
            async with transaction(self._pool) as connection:
                claimed = await webhooks.claim(connection, wanted, now, now + LEASE)
                rendered = await self._renderer.render(connection, claimed, now)
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one brand's rows must not stop the others
            if len(wanted) > 1:
                alone = [await self._claim_of({brand: wanted[brand]}, now) for brand in wanted]
                return [webhook for webhooks_ in alone for webhook in webhooks_]
            (brand,) = wanted
            telemetry.WEBHOOK_ERRORS.inc()
            log.error("webhooks.not_claimed", brand=hex_of(brand), error=loggable(error))
            self._endpoints.rest(brand, now + _REFUSED_REST)
            return []
        self._endpoints.note_claimed(wanted, Counter(due.brand_id for due in claimed))
        for brand in rendered.without_secret:
            self._endpoints.rest(brand, now + SHORTEST_DEFERRAL)
        return rendered.signed

    async def _scan(self) -> None:
        """Note the brands with due webhooks, if others than those noted may have some."""
        if self._is_scan_due:
            self._is_scan_due = False
            async with session(self._pool) as connection:
                await self._time.read(connection)
                brands = await webhooks.brands_with_due(connection, self._now())
            self._endpoints.add_due(brands)

    async def _renew(self) -> None:
        """Renew before each claim, so that this process claims no webhook that it is sending."""
        now = self._now()
        if under_way := self._leases.take_renewable(now):
            async with session(self._pool) as connection:
                await webhooks.renew(connection, under_way, now + LEASE)

    async def _deliver(self, webhook: SignedWebhook) -> None:
        brand, begun = webhook.due.brand_id, self._now()
        result = await attempts.deliver(self._http, webhook, self._now)
        now = self._now()
        telemetry.WEBHOOK_ATTEMPTS.labels(result.label).inc()
        if result.error is None:
            telemetry.WEBHOOK_SECONDS.observe((now - webhook.due.created_at).total_seconds())
            self._endpoints.succeeded(brand, now - begun)
        else:
            self._endpoints.failed(brand, result.status, result.retry_after, now)
        self._outcomes.add(attempts.outcome_of(webhook, result, now))
        if self._endpoints.end(brand):
            self._wake.notify()

    async def _measure(self) -> None:
        outage = Outage("webhooks.not_measured", "webhooks.measured_again")
        while True:
            try:
                async with session(self._pool) as connection:
                    facts = await webhook_records.backlog(connection)
            except (DatabaseUnavailable, asyncpg.PostgresError) as error:
                outage.failed(loggable_reason(error))
                for gauge in _GAUGES:
                    gauge.set(math.nan)
            else:
                outage.over()
                telemetry.WEBHOOKS_PENDING.set(facts.pending)
                telemetry.WEBHOOKS_HELD.set(facts.held)
                telemetry.WEBHOOKS_OLDEST_SECONDS.set(facts.oldest_seconds or 0)
                telemetry.WEBHOOKS_OVERDUE_SECONDS.set(facts.overdue_seconds)
                telemetry.WEBHOOK_ENDPOINTS_DISABLED.set(facts.disabled_endpoints)
            await asyncio.sleep(_MEASURE_SECONDS)
