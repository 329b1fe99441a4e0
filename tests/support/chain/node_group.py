"""Several fake nodes behind one client, as a pool of nodes shows them to the indexer.

A test chooses the pinned node by `in_use`; if that node is down or distrusted, it is the next one.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ltzd.chain.node.client import Head
from ltzd.chain.node.learned_limits import NodeLimits
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcCall, RpcClient
from ltzd.chain.node.traits import NodeTraits
from ltzd.errors import NodeUnavailable
from tests.support.chain.fake_node import FakeNode

_SALTS = 1_000_000
"""Apart, so that two nodes that mine the same height mine different blocks."""


@dataclass
class NodeGroup:
    nodes: list[FakeNode]
    in_use: int = 0
    reported: list[tuple[int, str]] = field(default_factory=list)
    """Position and kind of each reported contradiction."""
    distrusted: set[int] = field(default_factory=set)
    silent: list[int] = field(default_factory=list)
    """Position of each node that gave no answer in time, at each report."""

    @classmethod
    def of(
        cls, count: int, *, blocks: int = 0, kind: Callable[[], FakeNode] = FakeNode
    ) -> "NodeGroup":
        """Nodes that share the same first blocks."""
        nodes = [kind() for _ in range(count)]
        for position, node in enumerate(nodes):
            node._salt = position * _SALTS
        pool = cls(nodes)
        if blocks:
            nodes[0].mine(blocks)
            pool.share(0)
        return pool

    @property
    def node(self) -> Node:
        return Node(_Client(self, None))

    def share(self, source: int = 0, *targets: int) -> None:
        """Gives the blocks of one node to others, by default to all."""
        for target in targets or range(len(self.nodes)):
            self.nodes[target].blocks = list(self.nodes[source].blocks)

    def usable(self) -> list[int]:
        return [
            position
            for position, node in enumerate(self.nodes)
            if not node.is_down and position not in self.distrusted
        ]

    def best(self) -> int:
        usable = self.usable()
        if not usable:
            return self.in_use
        return self.in_use if self.in_use in usable else usable[0]


class _Client:
    """The client of the pool, or, pinned, of the node at `position`."""

    def __init__(self, pool: NodeGroup, position: int | None) -> None:
        self._pool = pool
        self._position = position

    @property
    def _at(self) -> int:
        return self._pool.best() if self._position is None else self._position

    @property
    def _node(self) -> FakeNode:
        return self._pool.nodes[self._at]

    async def call(self, method: str, *params: object) -> Any:
        return await self._node.call(method, *params)

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        return await self._node.batch(calls)

    async def outcomes(self, calls: Sequence[RpcCall]) -> list[Any]:
        return await self._node.outcomes(calls)

    async def batched_call(self, method: str, *params: object) -> Any:
        return await self._node.batched_call(method, *params)

    def pinned(self) -> RpcClient:
        if not any(not node.is_down for node in self._pool.nodes):
            raise NodeUnavailable("No node can be used")
        return self._pinned(self._at)

    async def newest(self, read: Callable[[RpcClient], Awaitable[Head]]) -> tuple[RpcClient, Head]:
        pinned = self.pinned()
        return pinned, await read(pinned)

    def others(self, min_height: int) -> Sequence[RpcClient]:
        return [
            self._pinned(position)
            for position in self._pool.usable()
            if position != self._at and self._pool.nodes[position].head.number >= min_height
        ]

    @property
    def is_alone(self) -> bool:
        return not [position for position in self._pool.usable() if position != self._at]

    def publishers(self) -> Sequence[RpcClient]:
        return (self._pinned(self._at),)

    @property
    def traits(self) -> NodeTraits:
        return self._node.traits

    @property
    def limits(self) -> NodeLimits:
        return self._node.limits

    def report_contradiction(self, kind: str) -> None:
        self._pool.reported.append((self._at, kind))
        self._pool.distrusted.add(self._at)

    def report_dispute(self, kind: str) -> None:
        self._pool.reported.append((self._at, kind))

    def report_silence(self) -> None:
        self._pool.silent.append(self._at)

    def _pinned(self, position: int) -> "_Client":
        return _Client(self._pool, position)
