"""The database's time, told by a clock that nobody sets.

Webhooks become due, and leases end, by the database's time. A machine whose own clock is behind
would leave all of them waiting, and one whose clock is ahead would send what others are sending.
"""

from datetime import UTC, datetime, timedelta

from ltzd.concurrency.clock import loop_time
from ltzd.store.database import Connection


class DatabaseTime:
    """Until the first `read`, `now` is this machine's time."""

    def __init__(self) -> None:
        self._set(datetime.now(UTC))

    def now(self) -> datetime:
        return self._time + timedelta(seconds=loop_time() - self._read_at)

    async def read(self, connection: Connection) -> None:
        self._set(await connection.fetchval("SELECT clock_timestamp()"))

    def _set(self, time: datetime) -> None:
        self._time, self._read_at = time, loop_time()
