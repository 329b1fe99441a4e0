"""Avoids a node whose answers contradict each other, and reports the node if that lasts.

Answers of a sound node may be inconsistent for a moment: while the chain changes, or while a second
node is awaited.
"""

from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock
from ltzd.indexer.branches import LINKS

_DETOUR = 2
"""Inconsistent steps in a row after which every second step uses another node."""
_LEAST_REPORTED = 5
"""Inconsistent steps in a row before the node is reported."""


class InconsistentAnswers:
    """Counts inconsistent steps of the node in use, which is reported after `stall_seconds`."""

    def __init__(self, stall_seconds: float, clock: Clock) -> None:
        self._stall_seconds = stall_seconds
        self._clock = clock
        self.count = 0
        self._since = 0.0
        self._is_detour = False
        """Whether this step uses another node than the one in use."""

    def node_of_step(self, node: Node) -> Node:
        """The node that the step now beginning uses; `node` is the one in use."""
        self._is_detour = self.count >= _DETOUR and not self._is_detour
        return next(iter(node.others()), node) if self._is_detour else node

    def note(self, node: Node, *, may_report: bool = True) -> None:
        """Record that this step's answers, from `node`, are inconsistent.

        Without `may_report` another node may be at fault, so `node` is not reported.
        """
        if self._is_detour:
            return
        now = self._clock()
        if self.count == 0:
            self._since = now
        self.count += 1
        if (
            may_report
            and self.count >= _LEAST_REPORTED
            and now - self._since >= self._stall_seconds
        ):
            self.count = 0
            node.report_contradiction(LINKS)

    def over(self) -> None:
        """Record that this step's answers are consistent."""
        if not self._is_detour:
            self.count = 0
