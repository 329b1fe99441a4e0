"""What relays and redemptions have in common: who sends them, what they cost, how they end."""

from dataclasses import dataclass
from typing import Self

from ltzd.actions.relayer.simulation import RelayRehearsal
from ltzd.actions.relayer.waiters import RelayBoard
from ltzd.actions.relayer.wallets import RelayOperators
from ltzd.chain.node.node import Node
from ltzd.chain.relayer.calls import RelayContracts
from ltzd.rules.operator.fees import FeePolicy
from ltzd.store.database import Pool
from ltzd.store.wakeups import WakeupHub


@dataclass(frozen=True, slots=True)
class RelayDesk:
    pool: Pool
    wakeups: WakeupHub
    node: Node
    contracts: RelayContracts
    board: RelayBoard
    rehearsal: RelayRehearsal
    operators: RelayOperators

    @classmethod
    def of(
        cls, pool: Pool, wakeups: WakeupHub, node: Node, contracts: RelayContracts, fees: FeePolicy
    ) -> Self:
        return cls(
            pool,
            wakeups,
            node,
            contracts,
            RelayBoard(pool, wakeups),
            RelayRehearsal(node, fees),
            RelayOperators(pool, contracts.chain_id),
        )
