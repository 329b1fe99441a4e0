"""The objects that relays and perk redemptions share."""

import asyncio
from typing import Self

import msgspec

from ltzd.actions.relayer.index_age import IndexAge
from ltzd.actions.relayer.simulation import RelaySimulator
from ltzd.actions.relayer.waiters import RelayWaiters
from ltzd.actions.relayer.wallets import RelayWallets
from ltzd.chain.node.node import Node
from ltzd.chain.node.views import ChainViews
from ltzd.chain.relayer.calls import RelayContracts
from ltzd.rules.operator.fees import FeePolicy
from ltzd.store.database import Pool
from ltzd.store.wakeups import WakeupHub


class RelayContext(msgspec.Struct, frozen=True):
    pool: Pool
    wakeups: WakeupHub
    node: Node
    contracts: RelayContracts
    waiters: RelayWaiters
    simulator: RelaySimulator
    wallets: RelayWallets
    views: ChainViews
    index: IndexAge

    async def run(self) -> None:
        """Answer waiters, and keep fresh what relays read each time, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.waiters.run())
            group.create_task(self.simulator.keep_fresh())
            group.create_task(self.wallets.keep_fresh())

    @classmethod
    def create(
        cls,
        pool: Pool,
        wakeups: WakeupHub,
        node: Node,
        contracts: RelayContracts,
        fees: FeePolicy,
    ) -> Self:
        return cls(
            pool,
            wakeups,
            node,
            contracts,
            RelayWaiters(pool, wakeups),
            RelaySimulator(node, fees),
            RelayWallets(pool, contracts.chain_id),
            ChainViews(node),
            IndexAge(pool),
        )
