"""Finds the newest final block: the nodes' `finalized`, or ltzd's own rule.

The decisions are in `rules/indexer/finality`.
"""

import asyncio

from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock
from ltzd.errors import NodeUnavailable
from ltzd.indexer.policy import IndexerPolicy
from ltzd.rules.indexer.finality import final_height, is_plausible
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import Cursor

FINALITY = "finality"
"""The kind of a node's contradiction with itself: its `finalized` is above its head."""


class FinalityTracker:
    """Remembers whether the nodes report finality at all, and when they were last compared."""

    def __init__(self, pool: Pool, policy: IndexerPolicy, clock: Clock) -> None:
        self._pool = pool
        self._policy = policy
        self._clock = clock
        self._nodes_have_finality = False
        self._compared_at: float | None = None

    def checked(self, node: Node, claim: int | None, head_number: int) -> int | None:
        """The node's `finalized`, or None if the node's own head contradicts it."""
        if is_plausible(claim, head_number):
            return claim
        node.report_contradiction(FINALITY)
        return None

    async def new_height(self, node: Node, claim: int | None, cursor: Cursor) -> int | None:
        """The height that counts as final from now on, or None if that has not changed.

        `claim` is the checked `finalized` of `node`. Asks the other nodes, but not at every block,
        and rarely while this node's claim does not change.
        """
        # Once a node has reported finality, the tag counts even while it is missing: our own rule
        # might run ahead of it.
        self._nodes_have_finality = self._nodes_have_finality or claim is not None
        if not self._nodes_have_finality:
            height = await self._by_own_rule()
        elif node.is_alone:
            height = claim
        elif claim is None or claim <= cursor.final_number:
            height = await self._compared(node, claim, self._policy.same_finality_pause_seconds)
        else:
            height = await self._compared(node, claim, self._policy.finality_pause_seconds)
        return height if height is not None and height > cursor.final_number else None

    async def _compared(self, node: Node, claim: int | None, pause: float) -> int | None:
        now = self._clock()
        if self._compared_at is not None and now - self._compared_at < pause:
            return None
        self._compared_at = now
        claims = await asyncio.gather(*(self._claim_of(other) for other in node.others()))
        # Another node that is away for a moment does not make this one the only node.
        return final_height([claim, *(claims or [None])], await self._by_own_rule())

    async def _claim_of(self, node: Node) -> int | None:
        """The node's `finalized`; None if the node does not answer, or is on another branch."""
        try:
            async with asyncio.timeout(self._policy.opinion_seconds):
                head, claim = await node.head_and_final()
                if not await self._is_on_branch(node, head.number):
                    return None
        except (NodeUnavailable, TimeoutError):
            return None
        return self.checked(node, claim, head.number)

    async def _is_on_branch(self, node: Node, head_number: int) -> bool:
        """Whether the node shows the newest indexed block that is not above its head.

        The `finalized` of another branch would make indexed blocks final that nobody else has.
        """
        async with session(self._pool) as connection:
            newest = await chains.newest_blocks(connection, head_number, 1)
        headers = await node.headers([number for number, _ in newest])
        return [header and header.hash for header in headers] == [shown for _, shown in newest]

    async def _by_own_rule(self) -> int | None:
        async with session(self._pool) as connection:
            return await chains.settled_number(
                connection, self._policy.final_depth, self._policy.final_seconds
            )
