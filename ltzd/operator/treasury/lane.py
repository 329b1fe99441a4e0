"""The treasury lane: its wallet fills the operator's other wallets, and does nothing else."""

from collections.abc import Sequence

import structlog

from ltzd.chain.node.node import Node
from ltzd.chain.signing import WalletSigner
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane import WalletLane
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork, OutcomeSink, StateChange
from ltzd.operator.policy import TREASURY, LanePolicy
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionSigner
from ltzd.operator.treasury.signer import TopUpSigner
from ltzd.rules.operator.top_ups import TopUpPolicy
from ltzd.store.database import Pool
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WALLETS, WakeupHub

log = structlog.get_logger()


class TreasuryLane(WalletLane):
    kind = TREASURY
    channel = WALLETS

    def __init__(
        self,
        pool: Pool,
        leases: Leases,
        node: Node,
        signer: WalletSigner,
        chain_id: int,
        wakeups: WakeupHub,
        policy: LanePolicy,
        top_ups: TopUpPolicy,
    ) -> None:
        super().__init__(pool, leases, node, signer, chain_id, wakeups, policy)
        self._top_ups = top_ups

    def _outcome_sink(self) -> OutcomeSink:
        return TopUpOutcomeSink()

    async def _lane_work(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        signer: TransactionSigner,
        next_nonce: int,
    ) -> LaneWork:
        return TopUpSigner(context, in_flight, guard, signer, self._top_ups, next_nonce)


class TopUpOutcomeSink(OutcomeSink):
    """Nothing waits for a top-up: the next look at the balances decides about another one."""

    def notify(self, changes: Sequence[StateChange]) -> None:
        for tx, _ in changes:
            log.info("treasury.top_up_moved", transaction=tx.id, state=tx.tx.state.value)
