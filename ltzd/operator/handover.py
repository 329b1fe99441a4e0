"""Leaves a wallet to another process, once this one has no node and the other one has.

A holder keeps its lease as long as it reaches the database, so without this the lane of a machine
that is cut off from its nodes alone would pay nobody, beside a standby that could.
"""

import asyncio

from ltzd.operator.lane_context import LaneContext
from ltzd.operator.pausing import LanePause
from ltzd.operator.policy import NODE, HandedOver
from ltzd.store import processes
from ltzd.store.database import session
from ltzd.store.operator.leases import lane_lease


class Handover:
    """Watches one term of a lane. While no process could do better, the lane keeps its lease."""

    def __init__(self, context: LaneContext, pause: LanePause) -> None:
        self._context = context
        self._pause = pause
        self._without_node_since: float | None = None

    async def run(self) -> None:
        """Look again and again. Raises HandedOver."""
        while True:
            await self.look()
            await asyncio.sleep(self._context.policy.pauses.status)

    async def look(self) -> None:
        """Raises HandedOver once the lane has waited for a node, and another process has one."""
        now = self._context.clock()
        if self._pause.reason != NODE:
            self._without_node_since = None
            return
        if self._without_node_since is None:
            self._without_node_since = now
        if now - self._without_node_since < self._context.policy.pauses.without_node:
            return
        lane = self._context.lane
        lease = lane_lease(lane.chain_id, lane.wallet)
        async with session(self._context.pool) as connection:
            if await processes.has_standby(connection, lease, lane.wallet):
                raise HandedOver(
                    "No node answers this process, and another process that has a node waits for "
                    "the wallet"
                )
