"""What relays and redemptions have in common: who sends them, what they cost, how they end."""

from dataclasses import dataclass
from typing import Self

from ltzd.actions.relay_board import RelayBoard
from ltzd.actions.relay_operators import RelayOperators
from ltzd.actions.relay_rehearsal import RelayRehearsal
from ltzd.chain.node import Node
from ltzd.chain.relay_calls import RelayContracts
from ltzd.rules.fees import FeePolicy
from ltzd.store.database import Pool
from ltzd.store.signals import Signals


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
