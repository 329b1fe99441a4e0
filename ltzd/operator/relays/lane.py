"""The relay lane: sends the calls that `POST /relay` has accepted, and pays for their gas."""

from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane import WalletLane
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork, OutcomeSink, RelayOutcomeSink
from ltzd.operator.policy import RELAY
from ltzd.operator.relays.signer import RelaySigner
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionSigner
from ltzd.store.database import session, transaction
from ltzd.store.operator import lanes
from ltzd.store.operator.lanes import Lane
from ltzd.store.relayer import claims
from ltzd.store.wakeups import RELAYS


class RelayLane(WalletLane):
    kind = RELAY
    channel = RELAYS

    async def _compare_references(self) -> None:
        """Does nothing: relays use no references."""

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
        return RelaySigner(context, in_flight, guard, signer, self._wakeups, next_nonce)

    async def _begin_term(self, first_nonce: int) -> tuple[Lane, int]:
        wallet = self._signer.address
        async with transaction(self._pool) as connection:
            lane = await lanes.begin_term(
                connection, self._chain_id, wallet, self.kind, first_nonce
            )
            next_nonce = await lanes.next_nonce(connection, self._chain_id, wallet)
        assert next_nonce is not None
        # Not in one transaction with the epoch, whose row a claim of the earlier term may wait for.
        # The term may have to wait for a node, and other lanes could send the relays meanwhile.
        async with session(self._pool) as connection:
            if await claims.give_back(connection, lane):
                self._wakeups.notify(RELAYS)
        return lane, next_nonce
