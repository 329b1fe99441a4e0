"""A relay simulator for tests without a chain: every simulation is in the view of one head."""

from ltzd.actions.relayer.simulation import RelaySimulator
from ltzd.chain.node.node import Header, Node
from ltzd.chain.node.view import ChainView
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.rules.relayer.calls import RelayPlan
from ltzd.values import Address, Hash32

A_HEAD = Header(
    number=16,
    hash=Hash32(b"\x10" * 32),
    parent_hash=Hash32(b"\x0f" * 32),
    timestamp=1_700_000_000,
    bloom=bytes(256),
    base_fee=9 * GWEI,
    gas_limit=30_000_000,
)


class SimulatorAtHead(RelaySimulator):
    def __init__(self, node: Node, policy: FeePolicy, clock: Clock = loop_time) -> None:
        super().__init__(node, policy, clock)
        self._view = ChainView(node, A_HEAD)

    async def gas_limit(
        self, plan: RelayPlan, sender: Address, requested: int | None, view: ChainView | None = None
    ) -> int:
        return await super().gas_limit(plan, sender, requested, view or self._view)
