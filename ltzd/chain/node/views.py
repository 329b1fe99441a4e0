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

MALFORMED_ANSWER = "malformed_answer"
"""Two decisions have failed at a node by data of a wrong shape."""
_WITHIN_SECONDS = 60.0


class MalformedAnswers:
    """Reports a node by whose malformed data two decisions within a minute have failed.

    The second must have begun after the first had failed: malformed data of a single moment may be
    a proxy's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: dict[str, float] = {}
        """By node: when the first of two decisions failed."""

    def failed(self, node: Node, error: NodeUnavailable, begun: float) -> None:
        """`begun` is when the decision began, on the clock."""
        if error.kind != "malformed" or node.is_alone:
            return
        now = self._clock()
        first = self._first.get(node.name)
        if first is None or now - first > _WITHIN_SECONDS:
            self._first[node.name] = now
        elif begun >= first:
            del self._first[node.name]
            node.report_contradiction(MALFORMED_ANSWER)


class ChainViews:
    def __init__(self, node: Node, clock: Clock = loop_time) -> None:
        self._node = node
        self._clock = clock
        self._views: Batcher[None, ChainView] = Batcher(self._read)
        self._malformed = MalformedAnswers(clock)

    async def newest(self) -> ChainView:
        """A view whose block was read after this call. Raises NodeUnavailable."""
        return await self._views.ask(None)

    async def decide(self, decide: Callable[[ChainView], Awaitable[Decision]]) -> Decision:
        """What `decide` returns for the newest view, or for another one if its node fails.

        `decide` may be called several times, so it must only read. Raises NodeUnavailable, and
        whatever `decide` raises.
        """

        async def attempt(other: Node | None) -> tuple[Node, Awaitable[Decision]]:
            view = await (self.newest() if other is None else ChainView.newest(other))
            return view.node, decide(view)

        return await self._attempts(attempt)

    async def decide_at_head(self, decide: Callable[[Node], Awaitable[Decision]]) -> Decision:
        """Like `decide`, for a decision that reads the chain once, at the node's newest block.

        Such a read needs no header. Some nodes answer for their newest block at a fraction of what
        an older one costs them.
        """

        async def attempt(other: Node | None) -> tuple[Node, Awaitable[Decision]]:
            node = other or self._node.pinned()
            return node, decide(node)

        return await self._attempts(attempt)

    async def _attempts(
        self, attempt: Callable[[Node | None], Awaitable[tuple[Node, Awaitable[Decision]]]]
    ) -> Decision:
        """Attempts at the best node, then at others that have not failed, as long as there are any.

        The pool itself keeps a node in use that answers, even if no decision succeeds by its
        answers.
        """
        other: Node | None = None
        failed: set[str] = set()
        for attempts_left in reversed(range(_VIEWS_TRIED)):
            begun, node = self._clock(), other
            try:
                node, decision = await attempt(other)
                return await decision
            except NodeUnavailable as error:
                if node is not None:
                    self._malformed.failed(node, error, begun)
                    failed.add(node.name)
                    other = next((each for each in node.others() if each.name not in failed), None)
                if not attempts_left or self._clock() - begun > _QUICK_SECONDS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _read(self, waiting: Sequence[None]) -> list[ChainView]:
        return [await ChainView.newest(self._node)] * len(waiting)
