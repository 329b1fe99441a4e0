"""Reports this process to the table `processes`, so that every process sees the installation."""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

import structlog

from ltzd import __version__
from ltzd.concurrency.outages import Outage
from ltzd.errors import DatabaseUnavailable
from ltzd.rules.conditions.facts import ProcessIdentity, ProcessReport
from ltzd.rules.conditions.policy import ConditionPolicy
from ltzd.rules.conditions.processes import replaced_by
from ltzd.store import processes
from ltzd.store.connection_errors import reason_of
from ltzd.store.database import Pool, session

log = structlog.get_logger()

REPORT_SECONDS = 5.0
_ATTEMPT_SECONDS = 10.0
_ENDING_SECONDS = 1.0
_CLOCK_SECONDS = 5.0
"""A report that took longer tells nothing of this machine's clock."""


def this_process(roles: tuple[str, ...]) -> ProcessIdentity:
    """A new identity, for one run of this process."""
    return ProcessIdentity(uuid4(), socket.gethostname(), os.getpid(), roles, __version__)


class ProcessReporter:
    """`report` is called for each report; it must neither wait nor raise.

    `on_clock` gets the seconds that this machine's clock is ahead of the database's.
    """

    def __init__(
        self,
        pool: Pool,
        process: ProcessIdentity,
        report: Callable[[], ProcessReport],
        *,
        on_clock: Callable[[float], None] = lambda _offset: None,
        period_seconds: float = REPORT_SECONDS,
    ) -> None:
        self._pool = pool
        self._process = process
        self._report = report
        self._on_clock = on_clock
        self._period_seconds = period_seconds
        self._due = asyncio.Event()

    def report_now(self) -> None:
        """End the pause between two reports."""
        self._due.set()

    async def run(self) -> None:
        """Report until cancelled. While the database does not answer, nothing is reported."""
        outage = Outage("process.not_reported", "process.reports_again")
        while True:
            self._due.clear()
            try:
                async with asyncio.timeout(_ATTEMPT_SECONDS), session(self._pool) as connection:
                    begun = time.time()
                    reported_at = await processes.report(connection, self._process, self._report())
                    if 0 <= time.time() - begun < _CLOCK_SECONDS:  # else it was frozen meanwhile
                        self._on_clock(time.time() - reported_at.timestamp())
            except (DatabaseUnavailable, TimeoutError) as error:
                outage.failed(reason_of(error))
            else:
                outage.over()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._period_seconds):
                    await self._due.wait()

    async def forget(self) -> None:
        """Delete the row, at a clean end, with the rows of the killed processes that it replaced.

        Without a database the rows stay for an hour.
        """
        me = self._process
        try:
            async with asyncio.timeout(_ENDING_SECONDS), session(self._pool) as connection:
                rows = await processes.list_all(connection)
                replaced = replaced_by(me, rows, ConditionPolicy())
                await processes.forget(connection, me.id, *(each.id for each in replaced))
        except (DatabaseUnavailable, TimeoutError) as error:
            log.info("process.not_forgotten", reason=reason_of(error))
