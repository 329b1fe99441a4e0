"""Writes the outcomes of attempts in groups: all that have arrived while the last was written.

If PostgreSQL refuses a group, its outcomes are written one by one. An outcome that is refused alone
waits behind the others, and keeps its lease: its webhook is not sent again meanwhile.

If the process is killed before an outcome is written, the attempt is made again.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import asyncpg
import structlog

from ltzd import telemetry
from ltzd.concurrency.loggable_errors import loggable
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
        self._group_size = _MAX_GROUP
        self._refused: set[UUID] = set()
        """The webhooks whose outcomes were refused, and whose lines are written."""

    def add(self, outcome: DeliveryOutcome) -> None:
        self._waiting.append(outcome)
        self._wakeup.notify()

    async def run(self) -> None:
        while True:
            await self._wakeup.wait()
            while self._waiting:
                await self._write(self._waiting[: self._group_size])

    async def _write(self, group: Sequence[DeliveryOutcome]) -> None:
        try:
            async with session(self._pool) as connection:
                closing = await webhooks.settle(connection, group)
        except DatabaseUnavailable as error:
            self._outage.failed(error.message, count=len(self._waiting))
            await asyncio.sleep(_PAUSE_SECONDS)
            return
        except asyncpg.PostgresError as error:
            self._outage.over()
            self._group_size = 1
            if len(group) == 1:
                await self._put_back(group[0], error)
            return
        self._outage.over()
        self._group_size = min(2 * self._group_size, _MAX_GROUP)
        del self._waiting[: len(group)]
        for outcome in group:
            self._leases.end(outcome.due.id)
            self._refused.discard(outcome.due.id)
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

    async def _put_back(self, refused: DeliveryOutcome, error: asyncpg.PostgresError) -> None:
        """Put the first outcome behind the others."""
        self._waiting.append(self._waiting.pop(0))
        if refused.due.id not in self._refused:
            self._refused.add(refused.due.id)
            telemetry.WEBHOOK_ERRORS.inc()
            log.error("webhook.outcome_refused", webhook=str(refused.due.id), error=loggable(error))
        await asyncio.sleep(_PAUSE_SECONDS)
