"""Turns away from a node whose answers do not fit each other, and reports it if that lasts.

Answers of a sound node may not fit for a moment: while the chain changes, or while a second node is
awaited.
"""

from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock
from ltzd.indexer.branches import LINKS

_DETOUR = 2
"""Misfits in a row after which every second step uses another node."""
_LEAST_REPORTED = 5
"""Misfits in a row, before their node is reported."""


class Misfits:
    """Counts the misfits in a row of the node in use, which is reported after `stall_seconds`."""

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
        """This step's answers, from `node`, do not fit each other.

        Without `may_report` other nodes' answers may be the cause.
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
        """This step's answers fit each other."""
        if not self._is_detour:
            self.count = 0
