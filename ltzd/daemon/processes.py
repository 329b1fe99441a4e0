"""Reports this process to the table `processes`, so that every process sees the installation."""

import asyncio
import os
import socket
from collections.abc import Callable
from uuid import uuid4

import structlog

from ltzd import __version__
from ltzd.errors import DatabaseUnavailable
from ltzd.rules.conditions.facts import ProcessIdentity, ProcessReport
from ltzd.store import processes
from ltzd.store.database import Pool, session

log = structlog.get_logger()

REPORT_SECONDS = 5.0
_ATTEMPT_SECONDS = 10.0
_ENDING_SECONDS = 1.0


def this_process(roles: tuple[str, ...]) -> ProcessIdentity:
    """A new identity, for one run of this process."""
    return ProcessIdentity(uuid4(), socket.gethostname(), os.getpid(), roles, __version__)


class ProcessReporter:
    """`report` is called for each report; it must neither wait nor raise."""

    def __init__(
        self,
        pool: Pool,
        process: ProcessIdentity,
        report: Callable[[], ProcessReport],
        *,
        period_seconds: float = REPORT_SECONDS,
    ) -> None:
        self._pool = pool
        self._process = process
        self._report = report
        self._period_seconds = period_seconds

    async def run(self) -> None:
        """Report until cancelled. While the database does not answer, nothing is reported."""
        while True:
            try:
                async with asyncio.timeout(_ATTEMPT_SECONDS), session(self._pool) as connection:
                    await processes.report(connection, self._process, self._report())
            except (DatabaseUnavailable, TimeoutError) as error:
                log.info("process.not_reported", reason=str(error))
            await asyncio.sleep(self._period_seconds)

    async def forget(self) -> None:
        """Delete the row, at a clean end. Without a database the row stays for an hour."""
        try:
            async with asyncio.timeout(_ENDING_SECONDS), session(self._pool) as connection:
                await processes.forget(connection, self._process.id)
        except (DatabaseUnavailable, TimeoutError) as error:
            log.info("process.not_forgotten", reason=str(error))
