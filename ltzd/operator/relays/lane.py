"""The relay lane: sends the calls that `POST /relay` has accepted, and pays for their gas."""

from ltzd.chain.node.node import Node
from ltzd.chain.signing import Signer, WalletSigner
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane import WalletLane
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork, OutcomeSink, RelayOutcomeSink
from ltzd.operator.policy import RELAY, LanePolicy, RelayTarget
from ltzd.operator.relays.roles import RelayRoles
from ltzd.operator.relays.signer import RelaySigner
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionSigner
from ltzd.store.database import Pool, session
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.leases import Leases
from ltzd.store.relayer import claims
from ltzd.store.relayer.direct_lanes import DirectLanes
from ltzd.store.wakeups import RELAYS, WakeupHub


class RelayLane(WalletLane):
    kind = RELAY
    channel = RELAYS

    def __init__(
        self,
        pool: Pool,
        leases: Leases,
        node: Node,
        signer: WalletSigner,
        target: RelayTarget,
        wakeups: WakeupHub,
        policy: LanePolicy,
        direct_lanes: DirectLanes | None = None,
    ) -> None:
        super().__init__(pool, leases, node, signer, target.chain_id, wakeups, policy)
        self._direct_lanes = direct_lanes
        self._contracts = target.contracts

    @property
    def _record_publications_after(self) -> float:
        return self._policy.pauses.publication_record

    def _outcome_sink(self) -> OutcomeSink:
        return RelayOutcomeSink(self._wakeups)

    async def _lane_work(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        signer: TransactionSigner,
        next_nonce: int,
    ) -> LaneWork:
        # A remote signer would keep admissions waiting.
        direct_lanes = self._direct_lanes if isinstance(self._signer, Signer) else None
        roles = RelayRoles(self._contracts, self.wallet, context.clock)
        return RelaySigner(
            context, in_flight, guard, signer, self._wakeups, next_nonce, roles, direct_lanes
        )

    async def _begin_term(self, first_nonce: int) -> tuple[Lane, int]:
        lane, next_nonce = await super()._begin_term(first_nonce)
        # Not in one transaction with the epoch, whose row a claim of the earlier term may wait for.
        # The term may have to wait for a node, and other lanes could send the relays meanwhile.
        async with session(self._pool) as connection:
            if await claims.give_back(connection, lane):
                self._wakeups.notify(RELAYS)
        return lane, next_nonce
