"""A pool of fake nodes: the real choice, circuit breakers and clients, with fakes at the wire.

async with a_fake_pool(first, first.sibling()) as pool:
    lane = RelayLane(…, pool.node("operator"), …)
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from ltzd.chain.node.node import Node
from ltzd.chain.pool.chain_check import ExpectedChain
from ltzd.chain.pool.member import Member
from ltzd.chain.pool.policy import NodePoolPolicy
from ltzd.chain.pool.pool import ROLES, NodePool
from ltzd.chain.pool.watch import NodeWatch
from ltzd.rules.nodes.breaker import BreakerPolicy
from ltzd.rules.nodes.choice import ChoicePolicy
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode

QUICK = NodePoolPolicy(
    hedge_after=0.1,
    pinned_timeout=2.0,
    watch_pause=0.02,
    compare_pause=3600.0,
    distrust_first=3600.0,
    breaker=BreakerPolicy(first_pause=0.05, longest_pause=0.2),
    # Nodes in memory are equally fast: a pause of this process does not make one of them slow.
    choice=ChoicePolicy(sticky_seconds=10.0),
)


class FakeNodePool(NodePool):
    """Its nodes are numbered in the order in which a test passes them."""

    def __init__(self, nodes: Sequence[FakeNode], policy: NodePoolPolicy = QUICK) -> None:
        super().__init__([], policy)
        for number, node in enumerate(nodes):
            node.limits.name = f"node {number}"
        self.members = [
            Member(
                f"node {number}",
                dict.fromkeys(ROLES, node),
                policy,
                self.clock,
                has_peers=len(nodes) > 1,
            )
            for number, node in enumerate(nodes)
        ]

    def node(self, role: str = "operator") -> Node:
        return Node(self.client(role))

    def prefer(self, position: int) -> None:
        """Makes a node the one in use for every role, whichever node has answered faster."""
        self._in_use = dict.fromkeys(ROLES, id(self.members[position]))

    def contradictions(self) -> list[set[str]]:
        """Returns the kinds of contradictions reported of each node."""
        prefix = "disagreement_"
        return [
            {kind.removeprefix(prefix) for kind in member.errors if kind.startswith(prefix)}
            for member in self.members
        ]


@asynccontextmanager
async def a_fake_pool(
    *nodes: FakeNode, policy: NodePoolPolicy = QUICK
) -> AsyncIterator[FakeNodePool]:
    pool = FakeNodePool(nodes, policy)
    pool.expect(ExpectedChain(CHAIN_ID, nodes[0].blocks[0].hash, LTZ_AT))
    watch = NodeWatch(pool)
    await watch.check_all()
    pool.prefer(0)
    task = asyncio.create_task(watch.run())
    try:
        yield pool
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
