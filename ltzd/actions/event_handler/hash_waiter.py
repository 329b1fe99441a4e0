"""Waits until the mints of rewards are published, and returns their hashes.

The mint lane may run in another process. A wake-up says that some transaction was published; one
query then reads the hashes for every waiter of this process. A lane of this process calls `deliver`
sooner.
"""

from collections.abc import Sequence
from uuid import UUID

from ltzd.concurrency.keyed_waiters import KeyedWaiters
from ltzd.concurrency.outages import Outage
from ltzd.concurrency.work_slots import release_held
from ltzd.errors import DatabaseUnavailable
from ltzd.store.database import Pool, session
from ltzd.store.operator import rewards
from ltzd.store.wakeups import PUBLISHED, WakeupHub
from ltzd.values import Hash32


class MintHashWaiters:
    def __init__(self, pool: Pool, wakeups: WakeupHub) -> None:
        self._pool = pool
        self._wakeup = wakeups.subscribe(PUBLISHED)
        self._waiting: KeyedWaiters[UUID, Hash32] = KeyedWaiters()

    async def run(self) -> None:
        """Answer waiters until cancelled."""
        outage = Outage("hashes.database_unavailable", "hashes.database_back")
        while True:
            await self._wakeup.wait()
            waiting = self.awaited()
            if not waiting:
                continue
            try:
                async with session(self._pool) as connection:
                    hashes = await rewards.published_hashes(connection, waiting)
            except DatabaseUnavailable as error:
                outage.failed(error.message)
                continue
            outage.over()
            for reward, hash_ in hashes.items():
                self._waiting.resolve(reward, hash_)

    def awaited(self) -> list[UUID]:
        """The rewards whose hashes callers are waiting for."""
        return self._waiting.keys()

    async def wait(self, reward: UUID, seconds: float) -> Hash32 | None:
        """Return the hash of the transaction that mints the reward, or None after `seconds`."""
        release_held()
        return await self._waiting.wait(reward, seconds)

    def deliver(self, rewards_: Sequence[UUID], hash_: Hash32) -> None:
        """Answer the rewards' waiters: a node has taken the transaction that mints them."""
        for reward in rewards_:
            self._waiting.resolve(reward, hash_)
