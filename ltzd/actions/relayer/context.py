"""What relays and redemptions have in common: who sends them, what they cost, how they end."""

from dataclasses import dataclass
from typing import Self

from ltzd.actions.relayer.simulation import RelayRehearsal
from ltzd.actions.relayer.waiters import RelayBoard
from ltzd.actions.relayer.wallets import RelayOperators
from ltzd.chain.node.node import Node
from ltzd.chain.relayer.calls import RelayContracts
from ltzd.concurrency.clock import Clock, loop_time
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
    clock: Clock = loop_time

    @classmethod
    def of(
        cls,
        pool: Pool,
        signals: Signals,
        node: Node,
        contracts: RelayContracts,
        fees: FeePolicy,
        clock: Clock = loop_time,
    ) -> Self:
        return cls(
            pool,
            signals,
            node,
            contracts,
            RelayBoard(pool, signals, clock),
            RelayRehearsal(node, fees),
            RelayOperators(pool, contracts.chain_id),
            clock,
        )
