"""Gives each decision a view of the chain that is no older than the decision.

Decisions that begin at the same time share the read of the newest block. A decision whose node
fails is made again on another node's view.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ltzd.chain.node.node import Node
from ltzd.chain.node.view import ChainView
from ltzd.concurrency.batcher import Batcher
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import NodeUnavailable

Decision = TypeVar("Decision")

_VIEWS_TRIED = 3
_QUICK_SECONDS = 5.0
"""A failure that took longer is not tried again: the caller has waited enough."""


class ChainViews:
    def __init__(self, node: Node, clock: Clock = loop_time) -> None:
        self._node = node
        self._clock = clock
        self._views: Batcher[None, ChainView] = Batcher(self._read)

    async def newest(self) -> ChainView:
        """A view whose block was read after this call. Raises NodeUnavailable."""
        return await self._views.ask(None)

    async def decide(self, decide: Callable[[ChainView], Awaitable[Decision]]) -> Decision:
        """What `decide` returns for the newest view, or for another one if its node fails.

        `decide` may be called several times, so it must only read. Raises NodeUnavailable, and
        whatever `decide` raises.
        """

        async def attempt() -> Decision:
            return await decide(await self.newest())

        return await self._attempts(attempt)

    async def decide_at_head(self, decide: Callable[[Node], Awaitable[Decision]]) -> Decision:
        """Like `decide`, for a decision that reads the chain once, at the node's newest block.

        Such a read needs no header. Some nodes answer for their newest block at a fraction of what
        an older one costs them.
        """

        async def attempt() -> Decision:
            return await decide(self._node.pinned())

        return await self._attempts(attempt)

    async def _attempts(self, attempt: Callable[[], Awaitable[Decision]]) -> Decision:
        for _ in range(_VIEWS_TRIED - 1):
            begun = self._clock()
            try:
                return await attempt()
            except NodeUnavailable:
                if self._clock() - begun > _QUICK_SECONDS:
                    raise
        return await attempt()

    async def _read(self, waiting: Sequence[None]) -> list[ChainView]:
        return [await ChainView.newest(self._node)] * len(waiting)
