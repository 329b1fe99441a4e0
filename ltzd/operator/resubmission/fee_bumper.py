"""Replaces transactions whose fee is too low to be mined, by attempts with higher fees.

An attempt has the nonce, call and gas limit of the one before, and other fees: whichever attempt is
mined, the intent is done, and no other attempt can be mined. The fees of a self-transfer that
cancels a call are raised in the same way. The new attempt is stored before any node sees it, so
that a crash finds it, and the hashes of all attempts are watched. Where the cap forbids another
tenth, the newest bytes go out again until fees fall. Nothing new is signed meanwhile: it would wait
behind them.
"""

from collections.abc import Sequence

import structlog

from ltzd import telemetry
from ltzd.chain.node.answers.typed import Header
from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.policy import FEES, SIGNER
from ltzd.operator.resubmission.attempt_signing import AttemptSigning, further_call
from ltzd.operator.signing import TransactionSigner
from ltzd.rules.operator.fees import (
    BumpReason,
    GasPrice,
    Waited,
    bump_reason,
    can_pay,
    replacement,
)
from ltzd.store.database import session
from ltzd.store.operator import transactions
from ltzd.store.operator.transactions import Attempt, OpenTransaction
from ltzd.store.wakeups import Wakeup
from ltzd.values import Hash32

log = structlog.get_logger()

_REPLACED_AT_ONCE = 16

Since = tuple[float, int]
"""A time of the lane's clock, and the head's block number then."""


class FeeBumper:
    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        signer: TransactionSigner,
        rounds: Wakeup,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._funds = funds
        self._signer = signer
        self._signing = AttemptSigning(in_flight, signer, rounds)
        self._reasons: dict[int, BumpReason] = {}
        self._now: Since = (0.0, 0)
        self._waiting: dict[Hash32, Since] = {}
        self._oldest: tuple[int, Since] = (-1, (0.0, 0))
        self._base_fee = 0

    async def replace_stuck(self, oldest: Sequence[OpenTransaction], head: Header) -> bool:
        """Replace what is stuck of the `oldest` transactions; return whether bytes are due.

        Raises LaneLost, DatabaseUnavailable.
        """
        self._note_waiting(oldest, head)
        gas_price = self._funds.gas_price
        if gas_price is None:
            return False
        self._retry_after_fall(oldest, gas_price)
        reasons = [(tx, self._bump_reason(tx, gas_price)) for tx in oldest]
        stuck = [(tx, reason) for tx, reason in reasons if reason is not None]
        held = None
        # In the order of nonces: a transaction that cannot be replaced holds up all after it.
        for tx, reason in stuck[:_REPLACED_AT_ONCE]:
            obstacle = await self._begin(tx, reason, gas_price)
            if obstacle is not None and reason is not BumpReason.PASSED_OVER:
                held = obstacle
                break
        _, unsigned = await self._signing.finish(self._store)
        if unsigned or self._signing.is_late:
            held = held or SIGNER
        self._in_flight.hold(held)
        return self._in_flight.has_due

    def _note_waiting(self, oldest: Sequence[OpenTransaction], head: Header) -> None:
        """Remember since when attempts wait, and since when the first transaction is the first."""
        self._now = (self._context.clock(), head.number)
        before, self._waiting = self._waiting, {}
        for tx in oldest:
            newest = tx.hashes[0]
            if newest in before:
                self._waiting[newest] = before[newest]
            elif not self._in_flight.is_due(tx):
                self._waiting[newest] = self._now
        first = oldest[0].nonce if oldest else -1
        if first != self._oldest[0]:
            self._oldest = (first, self._now)

    def _retry_after_fall(self, oldest: Sequence[OpenTransaction], gas_price: GasPrice) -> None:
        """After a fall of fees, publish again the bytes that were held because of fees.

        Bytes that a node holds start to wait anew. Refused bytes keep their waiting time: fees that
        go up and down would otherwise keep them from ever being late.
        """
        if self._in_flight.held_reason == FEES and gas_price.base_fee < self._base_fee:
            payable = [
                tx
                for tx in oldest
                if can_pay(tx.fees, gas_price, self._context.policy.fees)
                and not self._in_flight.is_rejected(tx)
            ]
            taken = [tx for tx in payable if not self._in_flight.is_refused(tx)]
            self._waiting.update({tx.hashes[0]: self._now for tx in taken})
            self._in_flight.retry_refused(payable)
        self._base_fee = gas_price.base_fee

    def _bump_reason(self, tx: OpenTransaction, gas_price: GasPrice) -> BumpReason | None:
        if self._in_flight.is_rejected(tx):
            return None  # No price helps: the canceller frees its nonce.
        if self._in_flight.is_refused(tx):
            return BumpReason.REFUSED
        waited = self._waited(tx)
        if waited is None:
            return None
        policy = self._context.policy
        return bump_reason(tx.fees, waited, gas_price, policy.fees, policy.resubmission)

    def _waited(self, tx: OpenTransaction) -> Waited | None:
        """Return None while the newest bytes of the transaction are not published.

        Blocks count for the oldest transaction alone, and from when it became the oldest: no other
        can be passed over.
        """
        since = self._waiting.get(tx.hashes[0])
        if since is None:
            return None
        oldest, oldest_since = self._oldest
        blocks = self._now[1] - max(since[1], oldest_since[1]) if tx.nonce == oldest else 0
        return Waited(self._now[0] - since[0], blocks)

    async def _begin(
        self, tx: OpenTransaction, reason: BumpReason, gas_price: GasPrice
    ) -> str | None:
        """Have a dearer attempt signed, or return the lane's reason to wait."""
        if self._signing.is_under_way(tx):
            return None
        fees = replacement(tx.fees, gas_price, self._context.policy.fees)
        if fees is None or (reason is BumpReason.REFUSED and not self._is_worth_a_try(tx)):
            return FEES
        if self._signer.is_backing_off:
            return SIGNER
        async with session(self._context.pool) as connection:
            call = await further_call(connection, self._signer, tx)
        obstacle = self._signer.obstacle(call, fees, self._in_flight.reserved_wei(beside=tx))
        if obstacle is not None:
            if obstacle.is_permanent:  # Blocks have become smaller than its gas limit.
                self._in_flight.reject(tx, obstacle.value)
            return obstacle.value
        self._reasons[tx.nonce] = reason
        self._signing.begin(tx, call, fees)
        return None

    async def _store(self, tx: OpenTransaction, attempt: Attempt) -> None:
        async with session(self._context.pool) as connection:
            await transactions.store_attempt(connection, self._context.lane, tx.id, attempt)
        self._in_flight.add_replacement(tx, attempt)
        reason = self._reasons.pop(tx.nonce)
        telemetry.TRANSACTIONS_REPLACED.labels(self._context.lane.kind, reason.value).inc()
        log.warning(
            "transaction.replaced",
            nonce=tx.nonce,
            reason=reason.value,
            attempts=len(tx.hashes) + 1,
            max_fee_wei=attempt.fees.max_fee_per_gas,
            tip_wei=attempt.fees.max_priority_fee_per_gas,
        )

    def _is_worth_a_try(self, tx: OpenTransaction) -> bool:
        """Whether to offer a tenth more to a node that refuses the transaction's price.

        At once if current fees are higher anyway, else only after `repeat_seconds`.
        """
        current, waited = self._funds.fees, self._waited(tx)
        is_below = current is not None and tx.fees.max_fee_per_gas < current.max_fee_per_gas
        is_late = waited is not None and waited.seconds >= self._context.policy.repeat_seconds
        return is_below or is_late
