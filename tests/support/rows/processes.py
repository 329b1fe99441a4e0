"""Rows of the table `processes`."""

from uuid import UUID

from ltzd.rules.conditions.facts import LaneState, ProcessIdentity, ProcessReport
from ltzd.store import processes
from ltzd.store.database import Pool, session

_STANDBY = ProcessIdentity(UUID(int=1), "another-machine", 1, ("operator",), "1")


async def report_standby(pool: Pool, *lanes: LaneState) -> None:
    """Another machine with the role operator tells that a node answers it, and of its lanes."""
    async with session(pool) as connection:
        await processes.report(connection, _STANDBY, ProcessReport(lanes=lanes, height=1))
