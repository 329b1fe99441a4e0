"""Rows of the table `processes`."""

from uuid import UUID

from ltzd.rules.conditions.facts import LaneState, ProcessIdentity, ProcessReport
from ltzd.store import processes
from ltzd.store.database import Pool, session
from ltzd.values import Address

_STANDBY = ProcessIdentity(UUID(int=1), "another-machine", 1, ("operator",), "1")


async def report_standby(pool: Pool, wallet: Address, kind: str) -> None:
    """Another machine tells that a node answers it, and that its lane waits for the wallet."""
    report = ProcessReport(lanes=(LaneState(wallet, kind, is_held=False),), height=1)
    async with session(pool) as connection:
        await processes.report(connection, _STANDBY, report)
