"""Frees the nonces of bytes that nodes refuse for good, by self-transfers (decision 0021).

The self-transfer is another attempt of the same intent: stored before any node sees it, so that a
crash finds it, and watched like all attempts. Its work stays tied to the intent until the nonce is
final: whichever attempt is mined decides.
"""

import structlog

from ltzd import telemetry
from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork
from ltzd.operator.policy import FEES
from ltzd.operator.signing import TransactionSigner, self_transfer
from ltzd.rules.operator.fees import GasPrice, cancellation
from ltzd.rules.operator.transactions import Effect, RefusedForGood, advance
from ltzd.store.database import session
from ltzd.store.operator import transactions
from ltzd.store.operator.transactions import OpenTransaction

log = structlog.get_logger()

_LONGEST_PAUSE_SECONDS = 120.0


class Canceller:
    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        signer: TransactionSigner,
        work: LaneWork,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._funds = funds
        self._signer = signer
        self._work = work
        self._offers: dict[int, tuple[float, float]] = {}
        """When refused self-transfers are offered again, and the pause after that, by nonce."""

    async def look(self) -> bool:
        """Deal with everything that was refused for good; True if there is something to publish.

        Raises LaneLost, DatabaseUnavailable.
        """
        self._offers = {
            nonce: offer for nonce, offer in self._offers.items() if self._in_flight.holds(nonce)
        }
        gas_price = self._funds.gas_price
        for tx in self._in_flight.rejected_transactions():
            if tx.tx.is_abandoned:
                self._offer_again(tx)
            elif gas_price is not None:
                await self._cancel(tx, gas_price)
        return self._in_flight.has_due

    async def _cancel(self, tx: OpenTransaction, gas_price: GasPrice) -> None:
        """Sign and store the self-transfer, or say what that waits for."""
        fees = cancellation(tx.fees, gas_price, self._context.policy.fees)
        if fees is None:
            self._in_flight.strand(tx, FEES)
            return
        after, effects = advance(tx.tx, RefusedForGood())
        assert Effect.CANCEL in effects, "only an abandoned transaction needs none"
        call = self_transfer(self._context.lane.wallet)
        async with self._context.signing_lock:
            beside_wei = self._in_flight.reserved_wei() - tx.max_cost_wei
            obstacle = self._signer.obstacle(call, fees, beside_wei)
            if obstacle is not None:
                self._in_flight.strand(tx, obstacle.value)
                return
            attempt = self._signer.sign(tx.nonce, call, fees, beside_wei)
            async with session(self._context.pool) as connection:
                await transactions.store_attempt(connection, self._context.lane, tx.id, attempt)
            self._in_flight.abandoned(tx, after, attempt)
        self._note(tx)

    def _note(self, tx: OpenTransaction) -> None:
        self._work.abandoned(tx)
        kind = self._context.lane.kind
        telemetry.TRANSACTIONS_ABANDONED.labels(kind).inc()
        log.critical("transaction.abandoned", kind=kind, transaction=tx.id, nonce=tx.nonce)

    def _offer_again(self, tx: OpenTransaction) -> None:
        """A node that refuses even the self-transfer is asked again, after a longer pause."""
        now = self._context.clock()
        first = self._context.policy.repeat_seconds
        due, pause = self._offers.setdefault(tx.nonce, (now + first, 2 * first))
        if now < due:
            return
        longest = max(first, _LONGEST_PAUSE_SECONDS)
        self._offers[tx.nonce] = (now + min(pause, longest), min(2 * pause, longest))
        self._in_flight.offer_again([tx])
