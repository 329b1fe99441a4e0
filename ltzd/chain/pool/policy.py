"""The settings of a pool of nodes. Units: seconds."""

import msgspec

from ltzd.chain.node.rpc import RpcPolicy
from ltzd.rules.nodes.breaker import BreakerPolicy
from ltzd.rules.nodes.choice import ChoicePolicy


class NodePoolPolicy(msgspec.Struct, frozen=True):
    """`timeout` bounds each request to a node, `connections` the requests of a role at one node.

    With other nodes to turn to, a request that has no answer after `hedge_after` is also given to
    the next node, and a pinned request is given up after `pinned_timeout`. A decision's first read,
    of the newest block, is given to the next node after `hedge_newest_after`.
    """

    timeout: float = 10.0
    connections: int = 16
    hedge_after: float = 2.0
    hedge_newest_after: float = 0.5
    pinned_timeout: float = 4.0
    silent_after: float = 1.0
    """A node without an answer for this time is asked for its chain id. If the node has no answer
    to that after as long again, it is silent and not slow, and the pinned request is given up."""
    watch_pause: float = 2.0
    """The pause between two checks of a node's head."""
    verify_pause: float = 15.0
    """The pause between two proofs of a node's chain. A falling head causes a proof at once."""
    shortest_pause: float = 0.2
    """The pause between checks of a node whose circuit has opened, or while no node is left."""
    witness_seconds: float = 10.0
    """How long after its last answer a node that fails is expected back as a witness."""
    tolerance_seconds: float = 3.0
    """A node is behind once its head is this far below the others', or `choice` blocks if more."""
    most_tolerance_blocks: int = 256
    """The most blocks that `tolerance_seconds` may mean: a faster chain is a node's invention."""
    compare_pause: float = 15.0
    """The pause between two comparisons of the nodes' blocks at one height."""
    compare_depth: int = 4
    """Blocks are compared this far below the credible height, where branches rarely differ."""
    distrust_first: float = 30.0
    distrust_longest: float = 3600.0
    """How long a node that contradicts itself or others is asked last; doubles each time."""
    patience: float = 1.0
    """With other nodes to turn to, the wait for a node's rate and for a free connection."""
    choice: ChoicePolicy = msgspec.field(default_factory=ChoicePolicy)
    breaker: BreakerPolicy = msgspec.field(default_factory=BreakerPolicy)

    def rpc_policy(self, *, has_peers: bool) -> RpcPolicy:
        """The policy of each node's clients."""
        return RpcPolicy(
            timeout_seconds=self.timeout,
            patience_seconds=self.patience if has_peers else self.timeout,
            connections=self.connections,
            slow_seconds=self.hedge_after,
        )
