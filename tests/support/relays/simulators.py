"""A relay simulator for tests without a chain: every simulation is at one head."""

from ltzd.actions.relayer.simulation import RelaySimulator, SimulatedAt
from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
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
        self._at = SimulatedAt(node, A_HEAD)

    async def gas_limit(
        self, plan: RelayPlan, sender: Address, requested: int | None, at: SimulatedAt | None = None
    ) -> int:
        return await super().gas_limit(plan, sender, requested, at or self._at)
