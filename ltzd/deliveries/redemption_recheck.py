"""Rechecks redemptions whose payment a reorg has undone, after every block.

A redemption whose code was shown waits for its payment: the operator publishes the transaction
again. A redemption whose payment can no longer come is reversed, and its brand gets a webhook.
Several processes may do this at once: each row is moved by one statement that names the state it
expects.
"""

import asyncio
from uuid import UUID

import asyncpg
import structlog

from ltzd import telemetry
from ltzd.concurrency.loggable_errors import loggable
from ltzd.concurrency.outages import Outage
from ltzd.errors import DatabaseUnavailable
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.site_plugin import redemption_payments
from ltzd.store.wakeups import BLOCKS, WakeupHub

log = structlog.get_logger()

_PERIOD_SECONDS = 10.0
_PAUSE_SECONDS = 1.0


class RedemptionRecheck:
    def __init__(self, pool: Pool, wakeups: WakeupHub) -> None:
        self._pool = pool
        self._blocks = wakeups.subscribe(BLOCKS)
        self._refused: set[UUID] = set()
        """Redemptions that the last recheck could not change, whose lines are written."""

    async def run(self) -> None:
        """Recheck after every block, until cancelled."""
        outage = Outage("redemptions.not_rechecked", "redemptions.rechecked_again")
        while True:
            try:
                await self.recheck()
            except DatabaseUnavailable as error:
                outage.failed(error.message)
            else:
                outage.over()
            await asyncio.sleep(_PAUSE_SECONDS)
            await self._blocks.wait(_PERIOD_SECONDS)

    async def recheck(self) -> None:
        """Restore or reverse what can be decided now. Raises DatabaseUnavailable.

        A redemption that PostgreSQL refuses to change is passed over until the next recheck.
        """
        async with session(self._pool) as connection:
            redemptions = await redemption_payments.list_lost(connection)
        telemetry.SITE_REDEMPTIONS_UNPAID.set(len(redemptions))
        refused = set()
        for redemption in redemptions:
            try:
                async with transaction(self._pool) as connection:
                    await _settle(connection, redemption)
            except asyncpg.PostgresError as error:
                refused.add(redemption)
                if redemption not in self._refused:
                    log.error(
                        "site_redemption.not_rechecked",
                        redemption=str(redemption),
                        error=loggable(error),
                    )
        self._refused = refused


async def _settle(connection: Connection, redemption: UUID) -> None:
    """Restore or reverse the redemption, if that can be decided now."""
    if await redemption_payments.restore(connection, redemption):
        log.info("site_redemption.paid_again", redemption=str(redemption))
    elif await redemption_payments.restore_by_receipt(connection, redemption):
        log.info("site_redemption.paid_at_replaced_contract", redemption=str(redemption))
    elif await redemption_payments.reverse(connection, redemption):
        telemetry.SITE_REDEMPTIONS_REVERSED.inc()
        log.error("site_redemption.reversed", redemption=str(redemption))
