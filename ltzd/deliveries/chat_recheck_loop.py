"""Every five minutes asks again what the chat platform said of users, and drops what has changed.

The platform tells nobody that a role was taken away or a level reached (spec 6.3). One process at a
time sweeps, the holder of a lock. Two of them, where one does not know yet that it has lost it, do
no harm: only what it has read is dropped, and nothing that was found out since.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from ltzd import telemetry
from ltzd.deliveries.chat_recheck import ChatRecheck
from ltzd.errors import LaneLost, Unavailable
from ltzd.providers.chat import ChatPlatform
from ltzd.rules.constraints.constraints import CHAT_KINDS
from ltzd.store.constraints import results as constraint_results
from ltzd.store.constraints.results import FIRST_KEY
from ltzd.store.database import Pool, session
from ltzd.store.operator import locks
from ltzd.store.operator.locks import LockTerm

log = structlog.get_logger()

PERIOD_SECONDS = 300.0
LOCK = "ltzd chat sweep"
_PAUSE_SECONDS = 0.5
_PAGE = 500

Sleep = Callable[[float], Awaitable[None]]


class ChatRecheckLoop:
    """`sleep` is for the period, and for what the platform asks us to wait."""

    def __init__(
        self, pool: Pool, database_url: str, platform: ChatPlatform, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._pool = pool
        self._database_url = database_url
        self._platform = platform
        self._sleep = sleep

    async def run(self) -> None:
        """Term after term, until cancelled."""
        while True:
            try:
                async with locks.hold_lock(self._database_url, LOCK) as term:
                    await self._serve(term)
            except Unavailable as error:
                log.warning("chat_sweep.term_over", reason=error.message)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def sweep(self) -> int:
        """Answers how many results were dropped. Raises DatabaseUnavailable."""
        look = ChatRecheck(self._platform, self._sleep)
        dropped, behind = 0, FIRST_KEY
        while True:
            async with session(self._pool) as connection:
                page = await constraint_results.list_in_force(connection, CHAT_KINDS, behind, _PAGE)
            if not page:
                break
            changed = await look.changed(page)
            async with session(self._pool) as connection:
                dropped += await constraint_results.delete(connection, changed)
            behind = page[-1].key
        async with session(self._pool) as connection:
            await constraint_results.delete_expired(connection)
        _tell(look, dropped)
        return dropped

    async def _serve(self, term: LockTerm) -> None:
        while not term.lost.is_set():
            await self.sweep()
            await self._until_due(term)
        raise LaneLost("The connection that held the sweep's lock is gone")

    async def _until_due(self, term: LockTerm) -> None:
        """Or until the lock is lost."""
        waiting = [
            asyncio.ensure_future(self._sleep(PERIOD_SECONDS)),
            asyncio.ensure_future(term.lost.wait()),
        ]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()


def _tell(look: ChatRecheck, dropped: int) -> None:
    telemetry.CHAT_RECHECKS.labels("partial" if look.unheard else "whole").inc()
    telemetry.CHAT_RESULTS_DROPPED.inc(dropped)
    if dropped:
        log.info("chat_sweep.dropped", results=dropped)
    if look.unheard:
        log.warning("chat_sweep.unheard", questions=look.unheard, reasons=sorted(look.reasons))
