"""Stops the index for a reason that a person reads, and waits until the index may go on.

A stopped index writes nothing; the process and its other roles keep running. The reason is in
the database (`chains.stopped_reason`), so a restart does not repeat the failed attempt, and every
process can show it. `ltzd index repair` and a rebuild clear it (decision 0033).

Code that must stop the index raises IndexStopped, with a sentence and the command to run; the
follower then calls `IndexStop.stop`.
"""

import structlog

from ltzd import telemetry
from ltzd.errors import Broken, IndexStopped
from ltzd.store import wakeups
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.wakeups import BLOCKS, WakeupHub

log = structlog.get_logger()

REPAIR = "ltzd index repair --config FILE"
REBUILD = "ltzd index rebuild --config FILE"


def reason_of(error: Broken) -> str:
    """The sentence that a person reads, with the command to run."""
    if isinstance(error, IndexStopped):
        return error.message
    return f"{error.message}. Run: {REPAIR}"


class IndexStop:
    """`reason` is None while the index is not stopped, as far as this term has read it."""

    def __init__(self, pool: Pool, chain_id: int, hub: WakeupHub) -> None:
        self._pool = pool
        self._chain_id = chain_id
        self._cleared = hub.subscribe(BLOCKS)
        self.reason: str | None = None

    async def read(self) -> str | None:
        """Read the reason from the database."""
        async with session(self._pool) as connection:
            self._set(await chains.stopped_reason(connection, self._chain_id))
        return self.reason

    async def stop(self, epoch: int, reason: str) -> None:
        """Write the reason, fenced by the term's epoch. Raises LaneLost, DatabaseUnavailable."""
        async with transaction(self._pool) as connection:
            await chains.stop(connection, self._chain_id, epoch, reason)
            await wakeups.notify(connection, BLOCKS)
        if self.reason is None:
            log.critical("indexer.stopped", reason=reason)
        self._set(reason)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait, then read from the database whether the index may continue, and return that."""
        await self._cleared.wait(seconds)
        if await self.read() is not None:
            return False
        log.warning("indexer.goes_on")
        return True

    def _set(self, reason: str | None) -> None:
        self.reason = reason
        telemetry.INDEX_STOPPED.set(reason is not None)
