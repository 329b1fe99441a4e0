"""The objects that relays and perk redemptions share."""

from dataclasses import dataclass
from typing import Self

from ltzd.actions.relayer.index_age import IndexAge
from ltzd.actions.relayer.simulation import RelaySimulator
from ltzd.actions.relayer.waiters import RelayWaiters
from ltzd.actions.relayer.wallets import RelayWallets
from ltzd.chain.node.node import Node
from ltzd.chain.node.views import ChainViews
from ltzd.chain.relayer.calls import RelayContracts
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.rules.operator.fees import FeePolicy
from ltzd.store.database import Pool
from ltzd.store.wakeups import WakeupHub


@dataclass(frozen=True, slots=True)
class RelayContext:
    """`clock` measures deadlines; the waiters measure them with the same clock."""

    pool: Pool
    wakeups: WakeupHub
    node: Node
    contracts: RelayContracts
    waiters: RelayWaiters
    simulator: RelaySimulator
    wallets: RelayWallets
    views: ChainViews
    index: IndexAge
    clock: Clock = loop_time

    @classmethod
    def create(
        cls,
        pool: Pool,
        wakeups: WakeupHub,
        node: Node,
        contracts: RelayContracts,
        fees: FeePolicy,
        clock: Clock = loop_time,
    ) -> Self:
        return cls(
            pool,
            wakeups,
            node,
            contracts,
            RelayWaiters(pool, wakeups, clock),
            RelaySimulator(node, fees, clock),
            RelayWallets(pool, contracts.chain_id),
            ChainViews(node, clock),
            IndexAge(pool, clock),
            clock,
        )
