"""Looks for the cause of an impossible fact, and corrects it, before the index is stopped.

A wrong fact of an earlier block makes a later fact impossible, such as a wallet that spends what it
never received. The blocks that no audit has read a second time are compared with the nodes, the
newest first; then the derived rows are compared with the facts. If the impossible fact itself
differs when it is read again, its own node was wrong, and nothing here needs a correction.
"""

import asyncio

import structlog

from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock
from ltzd.errors import Broken, NodeUnavailable
from ltzd.indexer.policy import IndexerPolicy
from ltzd.indexer.repair import IndexRepair
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains

log = structlog.get_logger()

_ATTEMPTS = 3
"""Attempts to index the same blocks, before the index is stopped."""
_MOST_FAILED_SEARCHES = 5
"""Searches in a row that no node answers to their end. From then on a failed search has found
nothing: a node that keeps no old logs never answers."""


class SelfRepair:
    """Counts the attempts to go on from the same block."""

    def __init__(
        self, pool: Pool, chain_id: int, repair: IndexRepair, policy: IndexerPolicy, clock: Clock
    ) -> None:
        self._pool = pool
        self._chain_id = chain_id
        self._repair = repair
        self._policy = policy
        self._clock = clock
        self._cursor_number: int | None = None
        self._attempts = 0
        self._failed_searches = 0

    async def attempt(self, node: Node, epoch: int, error: Broken) -> bool:
        """Search for the cause and correct it; return whether the indexer should go on.

        The indexer should go on if a cause was corrected, or if the nodes may answer differently.
        Returns after the pause that the next step needs. Raises Unavailable.
        """
        async with session(self._pool) as connection:
            cursor = await chains.cursor(connection, self._chain_id)
            audited = await chains.audited_number(connection, self._chain_id)
        if cursor.number != self._cursor_number:
            self._cursor_number, self._attempts, self._failed_searches = cursor.number, 0, 0
        log.error(
            "indexer.impossible_fact",
            block=cursor.number,
            attempt=self._attempts + 1,
            reason=error.message,
        )
        try:
            corrected = await self._search(node, epoch, audited + 1, cursor.number)
            self._failed_searches = 0
        except NodeUnavailable:
            self._failed_searches += 1
            if self._failed_searches < _MOST_FAILED_SEARCHES:
                raise
            corrected = 0
        self._attempts += 1
        if not corrected and self._attempts == _ATTEMPTS - 1:
            corrected = (await self._repair.check_derived(corrects=True, epoch=epoch)).total()
        if corrected:
            log.warning("indexer.repaired_itself", facts=corrected)
            self._attempts = 0
            return True
        if self._attempts >= _ATTEMPTS:
            return False
        await asyncio.sleep(self._policy.second_check_seconds)
        return True

    async def _search(self, node: Node, epoch: int, first: int, last: int) -> int:
        """Correct the newest range that differs; returns how many facts were corrected.

        A single node is asked for receipts, too: its answers to `eth_getLogs` may lack the same log
        again.
        """
        until = self._clock() + self._policy.search_seconds
        while last >= first and self._clock() < until:
            begin = max(first, last - self._policy.range_blocks + 1)
            corrected = await self._search_range(node, epoch, begin, last)
            if corrected:
                return corrected
            last = begin - 1
        return 0

    async def _search_range(self, node: Node, epoch: int, first: int, last: int) -> int:
        corrected = 0
        async for check in self._repair.walk(node, first, last):
            corrected += await self._repair.correct(check, epoch)
        if not corrected and node.is_alone:
            check = await self._repair.check_receipts(node, first, last)
            corrected += await self._repair.correct(check, epoch)
        return corrected
