"""Deletes rows that have expired, so that their tables stay small, erases old addresses, creates
the partitions of events ahead, and drops old ones.

Several processes may do this at once: each statement deletes only rows that no process needs any
more, and a row that another process has deleted is passed over.
"""

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import structlog

from ltzd import telemetry
from ltzd.concurrency.outages import Outage
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.store.constraints import chat_claims
from ltzd.store.constraints import results as constraint_results
from ltzd.store.database import LOST, Connection, Pool, session
from ltzd.store.event_handler import events, partitions
from ltzd.store.relayer import gas_budgets, relays
from ltzd.store.retention import old_events
from ltzd.store.retention.expiry import KEEP_ALL, RetentionPolicy, expire
from ltzd.store.retention.refused_rows import RefusedRows
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.webhooks import queue as webhooks

log = structlog.get_logger()

PERIOD_SECONDS = 60.0
RETENTION_PERIOD_SECONDS = 60.0
"""A page of users is looked at in each period; the rest is erased at once."""
WEBHOOKS_PERIOD_SECONDS = 3600.0
"""Webhooks are kept for weeks and deleted from large tables."""
OLD_EVENTS_PERIOD_SECONDS = 3600.0
"""A partition whose events are not all settled is read again in each period."""

Delete = Callable[[Connection], Awaitable[None]]
Sleep = Callable[[float], Awaitable[None]]

SHORT_LIVED: tuple[Delete, ...] = (
    events.delete_expired,
    relays.delete_expired,
    gas_budgets.delete_expired,
    constraint_results.delete_expired,
    chat_claims.delete_unused,
)
"""Nonces and windows that are over, lapsed relays and idempotency keys, days of gas, constraint
results, and reservations of claims that never came."""


class Cleanup:
    def __init__(
        self,
        pool: Pool,
        erased: ErasedAddresses,
        policy: RetentionPolicy = KEEP_ALL,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._pool = pool
        self._erased = erased
        self._policy = policy
        self._sleep = sleep

    async def run(self) -> None:
        """Delete at once and then periodically, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work, deletes, seconds in (
                ("partitions", (partitions.ensure,), PERIOD_SECONDS),
                ("short_lived", SHORT_LIVED, PERIOD_SECONDS),
                ("webhooks", (webhooks.delete_expired,), WEBHOOKS_PERIOD_SECONDS),
                ("retention", (self._erase_expired,), RETENTION_PERIOD_SECONDS),
                ("old_events", (self._close_old_events,), OLD_EVENTS_PERIOD_SECONDS),
            ):
                tasks.create_task(self._repeat(work, deletes, seconds))

    async def _erase_expired(self, connection: Connection) -> None:
        """Erase in batches until nothing is left, or until writers of events are too busy.

        Raises the refusal of a row that was passed over, after everything else was erased.
        """
        erased, refused = 0, RefusedRows()
        try:
            while count := await expire(connection, self._policy, self._erased, refused):
                erased += count
        except asyncpg.LockNotAvailableError:
            log.info("retention.waits", reason="events were being written for more than a second")
        if erased:
            log.info("retention.erased", rows=erased)
        if refused.error is not None:
            raise refused.error

    async def _close_old_events(self, connection: Connection) -> None:
        if self._policy.events is not None:
            await old_events.close(connection, self._policy.events)

    async def _repeat(self, work: str, deletes: tuple[Delete, ...], seconds: float) -> None:
        outage = Outage("cleanup.failed", "cleanup.works_again")
        while True:
            try:
                refusal = await self._round(deletes)
            except DatabaseUnavailable as error:
                refusal = error.message
            if refusal is None:
                telemetry.CLEANUP_RUNS.labels(work, "done").inc()
                outage.over(work=work)
            else:
                telemetry.CLEANUP_RUNS.labels(work, "failed").inc()
                outage.failed(refusal, work=work)
            await self._sleep(seconds)

    async def _round(self, deletes: tuple[Delete, ...]) -> str | None:
        """Return why a part of the round failed: a lack of rights, a row, or no master key.

        The other parts are done all the same. Raises DatabaseUnavailable.
        """
        refusal = None
        async with session(self._pool) as connection:
            for delete in deletes:
                try:
                    await delete(connection)
                except Misconfigured as error:
                    refusal = error.message
                except LOST:
                    raise
                except asyncpg.PostgresError as error:
                    refusal = f"PostgreSQL refuses it: {error.sqlstate}"
        return refusal
