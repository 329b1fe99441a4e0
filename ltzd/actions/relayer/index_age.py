"""Tells whether the index is recent enough to be asked instead of a node.

The decision is in `rules/indexer/freshness`; its facts are read at most once a second.
"""

from ltzd.concurrency.cached_value import CachedValue
from ltzd.rules.conditions.facts import ChainFacts
from ltzd.rules.indexer.freshness import is_fresh
from ltzd.rules.indexer.standstill import IndexProgress
from ltzd.store import cluster
from ltzd.store.database import Pool, session


class IndexAge:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._facts = CachedValue(self._read)

    def prefetch(self) -> None:
        """Start reading the facts if they are due."""
        self._facts.prefetch()

    async def is_fresh(self) -> bool:
        """Raises DatabaseUnavailable."""
        facts = await self._facts.get()
        if facts is None:
            return False
        progress = IndexProgress(
            cursor_number=facts.cursor_number,
            head_number=facts.head_number,
            idle_seconds=facts.idle_seconds,
            block_seconds=facts.block_seconds,
        )
        return is_fresh(progress, is_stopped=facts.stopped_reason is not None)

    async def _read(self) -> ChainFacts | None:
        async with session(self._pool) as connection:
            return await cluster.read_chain(connection)
