"""Asks the chat platform again every five minutes and deletes results that have changed.

The platform sends no notice when a role is taken away or a level is reached (spec 6.3). One process
at a time does this, the holder of a lease. A process that has lost it without knowing it does no
harm: a result is deleted only if it is still the one that was read.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from ltzd import telemetry
from ltzd.concurrency.outages import Outage
from ltzd.deliveries.chat_recheck import ChatRecheck
from ltzd.errors import Unavailable
from ltzd.providers.chat import ChatPlatform
from ltzd.rules.constraints.constraints import CHAT_KINDS
from ltzd.store.constraints import results as constraint_results
from ltzd.store.constraints.results import FIRST_KEY
from ltzd.store.database import Pool, session
from ltzd.store.operator.leases import CHAT_RECHECK, Leases

log = structlog.get_logger()

PERIOD_SECONDS = 300.0
_PAUSE_SECONDS = 0.5

Sleep = Callable[[float], Awaitable[None]]


class ChatRecheckLoop:
    """`sleep` waits out the period, and the pauses that the platform asks for."""

    def __init__(
        self,
        pool: Pool,
        leases: Leases,
        platform: ChatPlatform,
        sleep: Sleep = asyncio.sleep,
        page_size: int = 500,
    ) -> None:
        self._pool = pool
        self._leases = leases
        self._platform = platform
        self._sleep = sleep
        self._page_size = page_size

    async def run(self) -> None:
        """Recheck whenever the lease is free, until cancelled."""
        outage = Outage("chat_recheck.term_over", "chat_recheck.works_again")
        while True:
            try:
                async with self._leases.hold(CHAT_RECHECK):
                    outage.over()
                    await self._serve()
            except Unavailable as error:
                outage.failed(error.message)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def recheck(self) -> int:
        """Recheck all results; returns how many were deleted. Raises DatabaseUnavailable."""
        recheck = ChatRecheck(self._platform, self._sleep)
        dropped, after = 0, FIRST_KEY
        while True:
            async with session(self._pool) as connection:
                page = await constraint_results.list_in_force(
                    connection, CHAT_KINDS, after, self._page_size
                )
            if not page:
                break
            changed = await recheck.changed(page)
            async with session(self._pool) as connection:
                dropped += await constraint_results.delete(connection, changed)
            after = page[-1].key
        async with session(self._pool) as connection:
            await constraint_results.delete_expired(connection)
        _report(recheck, dropped)
        return dropped

    async def _serve(self) -> None:
        while True:
            await self.recheck()
            await self._sleep(PERIOD_SECONDS)


def _report(recheck: ChatRecheck, dropped: int) -> None:
    telemetry.CHAT_RECHECKS.labels("partial" if recheck.unanswered else "whole").inc()
    telemetry.CHAT_RESULTS_DROPPED.inc(dropped)
    if dropped:
        log.info("chat_recheck.dropped", results=dropped)
    if recheck.unanswered:
        log.warning(
            "chat_recheck.unanswered", questions=recheck.unanswered, reasons=sorted(recheck.reasons)
        )
