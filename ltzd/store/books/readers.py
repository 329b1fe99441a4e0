"""Connections that read one moment of the database side by side.

A query of the books reads whole tables and keeps one processor of the server busy; two connections
keep two. The second one adopts the first one's snapshot, so that both see the same rows.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import asyncpg

from ltzd.store.books.figures import snapshot
from ltzd.store.database import Connection

T = TypeVar("T")


class Readers:
    """Connections that take turns: each of them answers one query at a time."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._free: asyncio.Queue[Connection] = asyncio.Queue()
        for connection in connections:
            self._free.put_nowait(connection)

    async def read(self, read: Callable[[Connection], Awaitable[T]]) -> T:
        """Call `read` with the next free connection; callers are served in their order."""
        connection = await self._free.get()
        try:
            return await read(connection)
        finally:
            self._free.put_nowait(connection)


@asynccontextmanager
async def readers_of(connections: Sequence[Connection]) -> AsyncIterator[Readers]:
    """Read-only transactions of these connections on one moment of the database.

    A connection that cannot adopt the first one's snapshot is not used: several hosts in one URL
    may lead to different servers.
    """
    first, *others = connections
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(snapshot(first))
        joined = [first]
        if others:
            moment = await first.fetchval("SELECT pg_export_snapshot()")
        for other in others:
            try:
                await stack.enter_async_context(snapshot(other, moment))
            except asyncpg.PostgresError:
                continue
            joined.append(other)
        yield Readers(joined)


@asynccontextmanager
async def side_by_side() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group whose first error is raised as itself, after the other tasks have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
        raise first from first.__cause__
