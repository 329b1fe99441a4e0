"""Hands a wallet over to a standby process that has a node, once this process has none.

A holder keeps its lease as long as it reaches the database. Without a handover, a machine that is
cut off from its nodes alone would pay nobody, although a standby could. A lane whose rounds fail
although a node answers keeps its wallet: the standby may use the same node, and the lane turns to
its other nodes by itself.
"""

import asyncio

from ltzd.operator.lane_context import LaneContext
from ltzd.operator.policy import WATCHED, HandedOver
from ltzd.operator.send_guard import SendGuard
from ltzd.store import processes
from ltzd.store.database import session
from ltzd.store.operator.leases import lane_lease


class Handover:
    """Watches one term of a lane, which keeps its lease unless a standby has a node."""

    def __init__(self, context: LaneContext, guard: SendGuard) -> None:
        self._context = context
        self._guard = guard

    async def run(self) -> None:
        """Check every `pauses.status` seconds. Raises HandedOver."""
        while True:
            await self.check()
            await asyncio.sleep(self._context.policy.pauses.status)

    async def check(self) -> None:
        """Raises HandedOver if no node answers for `without_node`, and a standby has a node."""
        if self._guard.silent_seconds < self._context.policy.pauses.without_node:
            return
        lane = self._context.lane
        lease = lane_lease(lane.chain_id, lane.wallet)
        wallet = None if lane.kind == WATCHED else lane.wallet
        async with session(self._context.pool) as connection:
            if await processes.has_standby(connection, lease, wallet):
                raise HandedOver(
                    "No node answers this process, and another process that has a node waits for "
                    "the wallet"
                )
