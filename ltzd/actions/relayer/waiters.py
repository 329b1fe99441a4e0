"""Waits for relays: until one is settled, or until a user has no serialized relay in flight.

The lane that sends a relay may run in another process. A wake-up says that some relay was mined;
one query then reads the rows of every waiter of this process.
"""

import asyncio
from weakref import WeakValueDictionary

from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.keyed_waiters import KeyedWaiters
from ltzd.concurrency.outages import Outage
from ltzd.concurrency.work_slots import release_held
from ltzd.errors import DatabaseUnavailable
from ltzd.rules.relayer.calls import RelayProgress
from ltzd.store.database import Pool, session
from ltzd.store.relayer import relays
from ltzd.store.wakeups import RELAYED, WakeupHub
from ltzd.values import Address

_LONGEST_PAUSE_SECONDS = 0.05


class RelayWaiters:
    def __init__(self, pool: Pool, wakeups: WakeupHub) -> None:
        self._pool = pool
        self._wakeup = wakeups.subscribe(RELAYED)
        self._settled: KeyedWaiters[int, RelayProgress | None] = KeyedWaiters()
        self._idle_users: KeyedWaiters[Address, None] = KeyedWaiters()
        self._user_locks: WeakValueDictionary[Address, asyncio.Lock] = WeakValueDictionary()

    async def run(self) -> None:
        """Answer waiters until cancelled.

        The rows of thousands of waiters take their time, and a block of relays wakes often: a pause
        as long as the read before it lets wake-ups share a read.
        """
        outage = Outage("relays.database_unavailable", "relays.database_back")
        while True:
            await self._wakeup.wait()
            if not self._settled.keys() and not self._idle_users.keys():
                continue
            began = loop_time()
            try:
                await self._read()
            except DatabaseUnavailable as error:
                outage.failed(error.message)
            else:
                outage.over()
            await asyncio.sleep(min(loop_time() - began, _LONGEST_PAUSE_SECONDS))

    async def settled(self, relay: int, deadline: float) -> RelayProgress | None:
        """Return the relay once it is mined or never will be.

        Returns None at the deadline, and for a relay that was withdrawn.
        """
        release_held()
        return await self._settled.wait(relay, deadline - loop_time())

    def user_lock(self, user: Address) -> asyncio.Lock:
        """Serialize what this process begins for a user.

        Other processes are kept apart by the relays themselves: a permit names a nonce, and a claim
        the number of claims before it. Gives back the work slot, since the lock's holder may wait
        for a block.
        """
        release_held()
        return self._user_locks.setdefault(user, asyncio.Lock())

    async def user_idle(self, user: Address, deadline: float) -> None:
        """Return once the user has no serialized relay in flight, or at the deadline."""
        release_held()
        self.poll()
        await self._idle_users.wait(user, deadline - loop_time())

    def poll(self) -> None:
        """Read the rows now: the awaited change may be older than its waiter."""
        self._wakeup.notify()

    async def _read(self) -> None:
        ids, users = self._settled.keys(), self._idle_users.keys()
        async with session(self._pool) as connection:
            settled = await relays.settled(connection, ids) if ids else {}
            withdrawn = await relays.withdrawn(connection, ids) if ids else set()
            busy = await relays.users_with_serialized(connection, users) if users else set()
        for id_, relay in settled.items():
            self._settled.resolve(id_, relay)
        for id_ in withdrawn:
            self._settled.resolve(id_, None)
        for user in users:
            if user not in busy:
                self._idle_users.resolve(user, None)
