"""Waits for the hashes of rewards: one look at the database answers everybody who waits.

The mint lane may live in another process: a bell says that something was published, the rows say
what. A lane in this process tells sooner.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import structlog

from ltzd.errors import DatabaseUnavailable
from ltzd.store import rewards
from ltzd.store.database import Pool, session
from ltzd.store.signals import PUBLISHED, Signals
from ltzd.values import Hash32

log = structlog.get_logger()


class PublishedHashes:
    def __init__(self, pool: Pool, signals: Signals) -> None:
        self._pool = pool
        self._bell = signals.bell(PUBLISHED)
        self._waiting: dict[UUID, asyncio.Future[Hash32]] = {}

    async def wait(self, reward: UUID, seconds: float) -> Hash32 | None:
        """The published hash of a reward's mint, or None after `seconds`."""
        future: asyncio.Future[Hash32] = asyncio.get_running_loop().create_future()
        self._waiting[reward] = future
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._waiting[reward]

    def deliver(self, rewards_: Sequence[UUID], hash_: Hash32) -> None:
        """Tell who waits here: this process's lane calls it as soon as a node has the mint."""
        for reward in rewards_:
            self._resolve(reward, hash_)

    async def run(self) -> None:
        while True:
            await self._bell.wait()
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
