"""Carries out what people ask of the lane's transactions: `ltzd tx speed-up` and `ltzd tx cancel`.

An attempt and the outcome of its request are stored in one database transaction, before any node
sees the attempt. So a crash leaves a request that is done, with bytes that the next term publishes,
or one that the next term carries out: never a second attempt for the same request. A lane that a
person has paused carries requests out too, since they are no new work.
"""

from collections.abc import Sequence

import structlog

from ltzd import telemetry
from ltzd.chain.node.answers.typed import Header
from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.orders import LaneOrders
from ltzd.operator.resubmission.attempt_signing import AttemptSigning, further_call
from ltzd.operator.resubmission.resubmission import Resubmission
from ltzd.operator.signing import TransactionSigner
from ltzd.rules.operator.fees import BumpReason, GasPrice
from ltzd.rules.operator.requests import (
    IN_FLIGHT,
    Action,
    RequestOutcome,
    decide,
    outcome_of,
)
from ltzd.rules.operator.transactions import CancelRequested, advance
from ltzd.store.database import session, transaction
from ltzd.store.operator import requests, transactions
from ltzd.store.operator.requests import OpenRequest
from ltzd.store.operator.transactions import Attempt, OpenTransaction
from ltzd.store.operator.wallets import WalletState
from ltzd.store.wakeups import Wakeup

log = structlog.get_logger()

_AT_ONCE = 16


class _Closed(Exception):
    """The request was withdrawn or has expired while its attempt was being signed."""


class RequestHandler:
    """`rounds` is notified when a signature has come that a round did not wait for."""

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        signer: TransactionSigner,
        orders: LaneOrders,
        rounds: Wakeup,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._funds = funds
        self._signer = signer
        self._orders = orders
        self._signing = AttemptSigning(in_flight, signer, rounds)
        self._by_nonce: dict[int, OpenRequest] = {}
        """The requests whose attempts are being signed."""

    async def carry_out(self) -> bool:
        """Carry out open requests; return whether bytes are due.

        Raises LaneLost, DatabaseUnavailable.
        """
        gas_price = self._funds.gas_price
        # A late signature's cost is reserved until `finish`, even if its request was withdrawn.
        has_work = self._orders.has_requests or self._signing.is_late
        if not has_work or gas_price is None:
            return False
        async with session(self._context.pool) as connection:
            open_ = await requests.open_requests(connection, self._context.lane, _AT_ONCE)
        refused = []
        for request in open_:
            outcome = await self._begin(request, gas_price)
            if outcome is not None:
                refused.append((request, outcome))
        stored, unsigned = await self._signing.finish(self._store)
        refused += [
            (self._by_nonce.pop(tx.nonce), RequestOutcome.SIGNER)
            for tx in unsigned
            if tx.nonce in self._by_nonce
        ]
        await self._refuse(refused)
        return stored > 0

    async def _begin(self, request: OpenRequest, gas_price: GasPrice) -> RequestOutcome | None:
        """Have the attempt signed; returns why not, or None also if that cannot be told yet."""
        if request.is_expired:
            return RequestOutcome.EXPIRED
        if self._orders.state is WalletState.RETIRED:
            return RequestOutcome.NO_KEY
        tx = self._in_flight.with_id(request.transaction_id)
        if tx is None:
            return await self._outcome_of_settled(request)
        if self._signing.is_under_way(tx):
            return None
        fees = decide(
            request.action,
            tx.tx,
            tx.fees,
            gas_price,
            self._context.policy.fees,
            is_rejected=self._in_flight.is_rejected(tx),
        )
        if isinstance(fees, RequestOutcome):
            return fees
        if self._signer.is_backing_off:
            return RequestOutcome.SIGNER
        if request.action is Action.CANCEL:
            call = self._signer.self_transfer()
        else:
            async with session(self._context.pool) as connection:
                call = await further_call(connection, self._signer, tx)
        obstacle = self._signer.obstacle(call, fees, self._in_flight.reserved_wei(beside=tx))
        if obstacle is not None:
            return outcome_of(obstacle)
        self._by_nonce[tx.nonce] = request
        self._signing.begin(tx, call, fees)
        return None

    async def _outcome_of_settled(self, request: OpenRequest) -> RequestOutcome | None:
        """The outcome for a transaction that is not in flight in memory.

        Returns None if its row is in flight: a stored transaction gets into memory a moment later.
        """
        async with session(self._context.pool) as connection:
            state = await transactions.state_of(connection, request.transaction_id)
        return None if state in IN_FLIGHT else RequestOutcome.MINED

    async def _store(self, tx: OpenTransaction, attempt: Attempt) -> None:
        request = self._by_nonce.pop(tx.nonce)
        try:
            async with transaction(self._context.pool) as connection:
                await transactions.store_attempt(connection, self._context.lane, tx.id, attempt)
                if not await requests.carry_out(connection, request.id, attempt.hash):
                    raise _Closed
        except _Closed:
            log.info("request.closed", request=request.id, transaction=tx.id)
            return
        kind = self._context.lane.kind
        if request.action is Action.CANCEL:
            after, _ = advance(tx.tx, CancelRequested())
            self._in_flight.add_cancellation(tx, after, attempt)
        else:
            self._in_flight.add_replacement(tx, attempt)
            telemetry.TRANSACTIONS_REPLACED.labels(kind, BumpReason.BY_HAND.value).inc()
        log.warning(
            "request.done",
            kind=kind,
            action=request.action.value,
            transaction=tx.id,
            nonce=tx.nonce,
            max_fee_wei=attempt.fees.max_fee_per_gas,
            tip_wei=attempt.fees.max_priority_fee_per_gas,
        )

    async def _refuse(self, refused: Sequence[tuple[OpenRequest, RequestOutcome]]) -> None:
        if not refused:
            return
        async with session(self._context.pool) as connection:
            await requests.refuse(
                connection,
                self._context.lane,
                [(request.id, outcome) for request, outcome in refused],
            )
        for request, outcome in refused:
            log.info(
                "request.refused",
                action=request.action.value,
                transaction=request.transaction_id,
                outcome=outcome.value,
            )


class RequestedResubmission:
    """People's requests come first: fees that a request has raised are not raised again at once."""

    def __init__(self, resubmission: Resubmission, handler: RequestHandler) -> None:
        self._resubmission = resubmission
        self._handler = handler

    async def resubmit(self, oldest: Sequence[OpenTransaction], head: Header) -> bool:
        is_due = await self._handler.carry_out()
        return await self._resubmission.resubmit(oldest, head) or is_due
