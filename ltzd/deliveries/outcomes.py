"""Writes the outcomes of attempts in groups: all that have arrived while the last was written.

If the process is killed before an outcome is written, the attempt is made again.
"""

import asyncio
from collections.abc import Sequence

import structlog

from ltzd import telemetry
from ltzd.concurrency.outages import Outage
from ltzd.deliveries.leases import WebhookLeases
from ltzd.errors import DatabaseUnavailable
from ltzd.store.database import Pool, session
from ltzd.store.wakeups import Wakeup
from ltzd.store.webhooks import queue as webhooks
from ltzd.store.webhooks.queue import DeliveryOutcome
from ltzd.values import hex_of

log = structlog.get_logger()

_MAX_GROUP = 500
_PAUSE_SECONDS = 0.5


class OutcomeWriter:
    """Ends the lease of a webhook when its outcome is written."""

    def __init__(self, pool: Pool, leases: WebhookLeases) -> None:
        self._pool = pool
        self._leases = leases
        self._wakeup = Wakeup(None)
        self._waiting: list[DeliveryOutcome] = []
        self._outage = Outage("webhooks.outcomes_wait", "webhooks.outcomes_written")

    def add(self, outcome: DeliveryOutcome) -> None:
        self._waiting.append(outcome)
        self._wakeup.notify()

    async def run(self) -> None:
        while True:
            await self._wakeup.wait()
            while self._waiting:
                await self._write(self._waiting[:_MAX_GROUP])

    async def _write(self, group: Sequence[DeliveryOutcome]) -> None:
        try:
            async with session(self._pool) as connection:
                closing = await webhooks.settle(connection, group)
        except DatabaseUnavailable as error:
            self._outage.failed(error.message, count=len(self._waiting))
            await asyncio.sleep(_PAUSE_SECONDS)
            return
        self._outage.over()
        del self._waiting[: len(group)]
        for outcome in group:
            self._leases.end(outcome.due.id)
            if outcome.state == "exhausted":
                telemetry.WEBHOOKS_EXHAUSTED.inc()
                log.warning("webhook.exhausted", webhook=str(outcome.due.id), reason=outcome.error)
        for outcome in closing:
            telemetry.ENDPOINT_DISABLEMENTS.inc()
            log.error(
                "webhooks.endpoint_disabled",
                brand=hex_of(outcome.due.brand_id),
                why=outcome.disable_reason,
            )
