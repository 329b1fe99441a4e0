"""Waits for the hashes of rewards: one look at the database answers everybody who waits.

The mint lane may live in another process: a bell says that something was published, the rows say
what. A lane in this process tells sooner.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import structlog

from ltzd.errors import DatabaseUnavailable
from ltzd.store.database import Pool, session
from ltzd.store.operator import rewards
from ltzd.store.wakeups import PUBLISHED, WakeupHub
from ltzd.values import Hash32

log = structlog.get_logger()


class MintHashWaiters:
    def __init__(self, pool: Pool, wakeups: WakeupHub) -> None:
        self._pool = pool
        self._wakeup = wakeups.subscribe(PUBLISHED)
        self._waiting: dict[UUID, asyncio.Future[Hash32 | None]] = {}

    async def wait(self, reward: UUID, seconds: float) -> Hash32 | None:
        """The published hash of a reward's mint, or None after `seconds`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Hash32 | None] = loop.create_future()
        self._waiting[reward] = future
        # A bare timer: asyncio.timeout costs several times as much, and every event waits here.
        timer = loop.call_later(seconds, _give_up, future)
        try:
            return await future
        finally:
            timer.cancel()
            del self._waiting[reward]

    def deliver(self, rewards_: Sequence[UUID], hash_: Hash32) -> None:
        """Tell who waits here: this process's lane calls it as soon as a node has the mint."""
        for reward in rewards_:
            self._resolve(reward, hash_)

    async def run(self) -> None:
        while True:
            await self._wakeup.wait()
            if not self._waiting:
                continue
            try:
                async with session(self._pool) as connection:
                    found = await rewards.published_hashes(connection, list(self._waiting))
            except DatabaseUnavailable as error:
                log.warning("hashes.database_unavailable", reason=error.message)
                continue
            for reward, hash_ in found.items():
                self._resolve(reward, hash_)

    def _resolve(self, reward: UUID, hash_: Hash32) -> None:
        future = self._waiting.get(reward)
        if future is not None and not future.done():
            future.set_result(hash_)


def _give_up(future: asyncio.Future[Hash32 | None]) -> None:
    if not future.done():
        future.set_result(None)
