"""Frees the nonces of transactions that nodes refuse for good, by self-transfers (decision 0021).

The self-transfer is another attempt of the same intent, stored before any node sees it, so that a
crash finds it, and watched like all attempts. The work stays tied to the intent until the nonce is
final, since either attempt may be mined.
"""

import structlog

from ltzd import telemetry
from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork
from ltzd.operator.policy import FEES, SIGNER
from ltzd.operator.resubmission.attempt_signing import AttemptSigning
from ltzd.operator.signing import TransactionSigner
from ltzd.rules.operator.fees import GasPrice, cancellation
from ltzd.rules.operator.transactions import Effect, RefusedForGood, advance
from ltzd.store.database import session
from ltzd.store.operator import transactions
from ltzd.store.operator.transactions import Attempt, OpenTransaction
from ltzd.store.wakeups import Wakeup

log = structlog.get_logger()


class Canceller:
    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        signer: TransactionSigner,
        work: LaneWork,
        rounds: Wakeup,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._funds = funds
        self._signer = signer
        self._work = work
        self._signing = AttemptSigning(in_flight, signer, rounds)
        self._retries: dict[int, tuple[float, float]] = {}
        """By nonce: when a refused self-transfer is published again, and the pause after that."""

    async def cancel_rejected(self) -> bool:
        """Cancel rejected transactions; return whether there is something to publish.

        Raises LaneLost, DatabaseUnavailable.
        """
        self._retries = {
            nonce: retry
            for nonce, retry in self._retries.items()
            if self._in_flight.contains(nonce)
        }
        gas_price = self._funds.gas_price
        for tx in self._in_flight.rejected():
            if tx.tx.is_abandoned:
                self._retry(tx)
            elif gas_price is not None and not self._signing.is_under_way(tx):
                self._begin(tx, gas_price)
        _, unsigned = await self._signing.finish(self._store)
        for tx in unsigned:
            self._in_flight.block(tx, SIGNER)
        return self._in_flight.has_due

    def _begin(self, tx: OpenTransaction, gas_price: GasPrice) -> None:
        """Have the self-transfer signed, or record why that must wait."""
        fees = cancellation(tx.fees, gas_price, self._context.policy.fees)
        if fees is None:
            self._in_flight.block(tx, FEES)
            return
        if self._signer.is_backing_off:
            self._in_flight.block(tx, SIGNER)
            return
        call = self._signer.self_transfer()
        obstacle = self._signer.obstacle(call, fees, self._in_flight.reserved_wei(beside=tx))
        if obstacle is not None:
            self._in_flight.block(tx, obstacle.value)
            return
        self._signing.begin(tx, call, fees)

    async def _store(self, tx: OpenTransaction, attempt: Attempt) -> None:
        if not self._in_flight.is_rejected(tx):
            return  # A node has taken the call after all.
        after, effects = advance(tx.tx, RefusedForGood())
        assert Effect.CANCEL in effects, "only an abandoned transaction needs no self-transfer"
        async with session(self._context.pool) as connection:
            await transactions.store_attempt(connection, self._context.lane, tx.id, attempt)
        self._in_flight.add_cancellation(tx, after, attempt)
        self._work.on_abandoned(tx)
        kind = self._context.lane.kind
        telemetry.TRANSACTIONS_ABANDONED.labels(kind).inc()
        log.critical("transaction.abandoned", kind=kind, transaction=tx.id, nonce=tx.nonce)

    def _retry(self, tx: OpenTransaction) -> None:
        """Publish a self-transfer again that nodes refuse too, after growing pauses."""
        now = self._context.clock()
        first = self._context.policy.repeat_seconds
        due, pause = self._retries.setdefault(tx.nonce, (now + first, 2 * first))
        if now < due:
            return
        longest = max(first, self._context.policy.pauses.longest_cancellation)
        self._retries[tx.nonce] = (now + min(pause, longest), min(2 * pause, longest))
        self._in_flight.retry_refused([tx])
