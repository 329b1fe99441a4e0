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
from ltzd.store.wakeups import Signals


@dataclass(frozen=True, slots=True)
class RelayDesk:
    pool: Pool
    signals: Signals
    node: Node
    contracts: RelayContracts
    board: RelayBoard
    rehearsal: RelayRehearsal
    operators: RelayOperators

    @classmethod
    def of(
        cls, pool: Pool, signals: Signals, node: Node, contracts: RelayContracts, fees: FeePolicy
    ) -> Self:
        return cls(
            pool,
            signals,
            node,
            contracts,
            RelayBoard(pool, signals),
            RelayRehearsal(node, fees),
            RelayOperators(pool, contracts.chain_id),
        )
