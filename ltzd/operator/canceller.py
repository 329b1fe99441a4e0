"""Frees the nonces of bytes that nodes refuse for good, by self-transfers (decision 0021).

The self-transfer is another attempt of the same intent: stored before any node sees it, so that a
crash finds it, and watched like all attempts. Its work stays tied to the intent until the nonce is
final: whichever attempt is mined decides.
"""

import asyncio

import structlog

from ltzd import telemetry
from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import Book
from ltzd.operator.lane_context import Desk
from ltzd.operator.lane_work import Work
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
        self, desk: Desk, book: Book, purse: FundsTracker, signer: TransactionSigner, work: Work
    ) -> None:
        self._desk = desk
        self._book = book
        self._purse = purse
        self._signer = signer
        self._work = work
        self._offers: dict[int, tuple[float, float]] = {}
        """When refused self-transfers are offered again, and the pause after that, by nonce."""

    async def look(self) -> bool:
        """Deal with everything that was refused for good; True if there is something to publish.

        Raises LaneLost, DatabaseUnavailable.
        """
        self._offers = {
            nonce: offer for nonce, offer in self._offers.items() if self._book.holds(nonce)
        }
        market = self._purse.market
        for tx in self._book.rejected_transactions():
            if tx.tx.is_abandoned:
                self._offer_again(tx)
            elif market is not None:
                await self._cancel(tx, market)
        return self._book.has_due

    async def _cancel(self, tx: OpenTransaction, market: GasPrice) -> None:
        """Sign and store the self-transfer, or say what that waits for."""
        fees = cancellation(tx.fees, market, self._desk.policy.fees)
        if fees is None:
            self._book.strand(tx, FEES)
            return
        after, effects = advance(tx.tx, RefusedForGood())
        assert Effect.CANCEL in effects, "only an abandoned transaction needs none"
        call = self_transfer(self._desk.lane.wallet)
        async with self._desk.pen:
            beside_wei = self._book.reserved_wei() - tx.worst_wei
            obstacle = self._signer.obstacle(call, fees, beside_wei)
            if obstacle is not None:
                self._book.strand(tx, obstacle.value)
                return
            attempt = self._signer.sign(tx.nonce, call, fees, beside_wei)
            async with session(self._desk.pool) as connection:
                await transactions.store_attempt(connection, self._desk.lane, tx.id, attempt)
            self._book.abandoned(tx, after, attempt)
        self._note(tx)

    def _note(self, tx: OpenTransaction) -> None:
        self._work.abandoned(tx)
        kind = self._desk.lane.kind
        telemetry.TRANSACTIONS_ABANDONED.labels(kind).inc()
        log.critical("transaction.abandoned", kind=kind, transaction=tx.id, nonce=tx.nonce)

    def _offer_again(self, tx: OpenTransaction) -> None:
        """A node that refuses even the self-transfer is asked again, after a longer pause."""
        now = asyncio.get_running_loop().time()
        first = self._desk.policy.repeat_seconds
        due, pause = self._offers.setdefault(tx.nonce, (now + first, 2 * first))
        if now < due:
            return
        longest = max(first, _LONGEST_PAUSE_SECONDS)
        self._offers[tx.nonce] = (now + min(pause, longest), min(2 * pause, longest))
        self._book.offer_again([tx])
