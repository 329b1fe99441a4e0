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
        for _ in range(_VIEWS_TRIED - 1):
            begun = self._clock()
            try:
                return await decide(await self.newest())
            except NodeUnavailable:
                if self._clock() - begun > _QUICK_SECONDS:
                    raise
        return await decide(await self.newest())

    async def _read(self, waiting: Sequence[None]) -> list[ChainView]:
        return [await ChainView.newest(self._node)] * len(waiting)
