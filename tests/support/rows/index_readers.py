"""A reader of the index on a connection of its own, as HTTP has one beside the indexer's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ltzd.store.database import Pool, session


@dataclass(frozen=True)
class IndexState:
    """The index as one statement shows it.

    `held` is the sum of all balances in LTZ's smallest unit.
    """

    cursor: tuple[int, bytes]
    newest: tuple[int, bytes]
    held: int
    transfers: int


@dataclass
class IndexReader:
    pool: Pool
    seen: set[IndexState] = field(default_factory=set)
    reads: int = 0

    async def read(self) -> IndexState:
        async with session(self.pool) as connection:
            row = await connection.fetchrow(
                """
                SELECT cursor_number, cursor_hash, newest.number, newest.hash,
                       (SELECT coalesce(sum(amount), 0) FROM balances),
                       (SELECT count(*) FROM transfers)
                  FROM chains, (SELECT number, hash FROM blocks ORDER BY number DESC LIMIT 1)
                                 AS newest
                """
            )
        state = IndexState((row[0], row[1]), (row[2], row[3]), int(row[4]), row[5])
        self.seen.add(state)
        self.reads += 1
        return state

    @asynccontextmanager
    async def polling(self) -> AsyncIterator[None]:
        """Reads all the time, and at least once after the block's end."""
        stop = asyncio.Event()

        async def poll() -> None:
            while not stop.is_set():
                await self.read()
            await self.read()

        async with asyncio.TaskGroup() as group:
            group.create_task(poll())
            try:
                yield
            finally:
                stop.set()
