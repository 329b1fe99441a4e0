"""Replaces transactions that will not be mined at their price by dearer ones of the same intent.

Same nonce, call and gas limit, other fees: whichever attempt is mined, the intent is done, and no
other can be. A self-transfer in place of an abandoned call is made dearer in the same way. The new
attempt is stored before any node sees it, so that a crash finds it, and the hashes of all of them
are watched. Where the cap forbids another tenth, the bytes that exist go out again until fees fall;
nothing new is signed meanwhile, since it would wait behind them.
"""

from collections.abc import Sequence

import structlog

from ltzd import telemetry
from ltzd.chain.node.node import Header
from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.policy import FEES
from ltzd.operator.signing import Call, TransactionSigner, self_transfer
from ltzd.rules.operator.fees import BumpReason, GasPrice, Wait, bump_reason, can_pay, replacement
from ltzd.store.database import Connection, session
from ltzd.store.operator import transactions
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.values import Hash32

log = structlog.get_logger()

_REPLACED_AT_ONCE = 16

Since = tuple[float, int]
"""When, and at which block, something began."""


class FeeBumper:
    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        signer: TransactionSigner,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._funds = funds
        self._signer = signer
        self._now: Since = (0.0, 0)
        self._waiting: dict[Hash32, Since] = {}
        self._oldest: tuple[int, Since] = (-1, (0.0, 0))
        self._base_fee = 0

    async def look(self, flight: Sequence[OpenTransaction], head: Header) -> bool:
        """Replace what is stuck of `flight`, the oldest transactions; True if that gives work.

        Raises LaneLost, DatabaseUnavailable.
        """
        self._note(flight, head)
        gas_price = self._funds.gas_price
        if gas_price is None:
            return False
        self._note_fall(flight, gas_price)
        reasons = [(tx, self._why_stuck(tx, gas_price)) for tx in flight]
        stuck = [(tx, reason) for tx, reason in reasons if reason is not None]
        held, replaced = None, 0
        # In the order of nonces: what cannot be helped holds up everything behind it.
        for tx, reason in stuck[:_REPLACED_AT_ONCE]:
            obstacle = await self._replace(tx, reason, gas_price)
            if obstacle is None:
                replaced += 1
            elif reason is not BumpReason.PASSED_OVER:
                held = obstacle
                break
        self._in_flight.held = held
        return replaced > 0 or self._in_flight.has_due

    def _note(self, flight: Sequence[OpenTransaction], head: Header) -> None:
        """Remember since when attempts wait, and since when the oldest transaction is that."""
        self._now = (self._context.clock(), head.number)
        before, self._waiting = self._waiting, {}
        for tx in flight:
            newest = tx.hashes[0]
            if newest in before:
                self._waiting[newest] = before[newest]
            elif not self._in_flight.is_to_publish(tx):
                self._waiting[newest] = self._now
        oldest = flight[0].nonce if flight else -1
        if oldest != self._oldest[0]:
            self._oldest = (oldest, self._now)

    def _note_fall(self, flight: Sequence[OpenTransaction], gas_price: GasPrice) -> None:
        """Fees have fallen: what was held because of them is offered as it is.

        What a node holds waits anew; what was refused waits on, or fees that wobble would keep it
        from ever being late.
        """
        if self._in_flight.held == FEES and gas_price.base_fee < self._base_fee:
            payable = [
                tx
                for tx in flight
                if can_pay(tx.fees, gas_price, self._context.policy.fees)
                and not self._in_flight.is_rejected(tx)
            ]
            taken = [tx for tx in payable if not self._in_flight.is_refused(tx)]
            self._waiting.update({tx.hashes[0]: self._now for tx in taken})
            self._in_flight.offer_again(payable)
        self._base_fee = gas_price.base_fee

    def _why_stuck(self, tx: OpenTransaction, gas_price: GasPrice) -> BumpReason | None:
        if self._in_flight.is_rejected(tx):
            return None  # No price helps: `cancelling` frees its nonce.
        if self._in_flight.is_refused(tx):
            return BumpReason.REFUSED
        wait = self._wait(tx)
        if wait is None:
            return None
        policy = self._context.policy
        return bump_reason(tx.fees, wait, gas_price, policy.fees, policy.patience)

    def _wait(self, tx: OpenTransaction) -> Wait | None:
        """None while its newest bytes have not been handed out.

        Blocks count for the oldest alone, and from when it was that: no other can be passed over.
        """
        since = self._waiting.get(tx.hashes[0])
        if since is None:
            return None
        oldest, oldest_since = self._oldest
        blocks = self._now[1] - max(since[1], oldest_since[1]) if tx.nonce == oldest else 0
        return Wait(self._now[0] - since[0], blocks)

    async def _replace(
        self, tx: OpenTransaction, stuck: BumpReason, gas_price: GasPrice
    ) -> str | None:
        """Sign and store a dearer attempt; or say what the lane waits for."""
        fees = replacement(tx.fees, gas_price, self._context.policy.fees)
        if fees is None or (stuck is BumpReason.REFUSED and not self._is_worth_a_try(tx)):
            return FEES
        async with self._context.signing_lock, session(self._context.pool) as connection:
            call = await self._call_of(connection, tx)
            beside_wei = self._in_flight.reserved_wei() - tx.max_cost_wei
            obstacle = self._signer.obstacle(call, fees, beside_wei)
            if obstacle is not None:
                if obstacle.is_permanent:  # Blocks have become smaller than its gas limit.
                    self._in_flight.reject(tx, obstacle.value)
                return obstacle.value
            attempt = self._signer.sign(tx.nonce, call, fees, beside_wei)
            await transactions.store_attempt(connection, self._context.lane, tx.id, attempt)
            self._in_flight.replaced(tx, attempt)
        telemetry.TRANSACTIONS_REPLACED.labels(self._context.lane.kind, stuck.value).inc()
        log.warning(
            "transaction.replaced",
            nonce=tx.nonce,
            reason=stuck.value,
            attempts=len(tx.hashes) + 1,
            max_fee_wei=fees.max_fee_per_gas,
            tip_wei=fees.max_priority_fee_per_gas,
        )
        return None

    async def _call_of(self, connection: Connection, tx: OpenTransaction) -> Call:
        if tx.tx.is_abandoned:
            return self_transfer(self._context.lane.wallet)
        to, data = await transactions.read_call(connection, tx.id)
        return Call(to, data, tx.gas_limit)

    def _is_worth_a_try(self, tx: OpenTransaction) -> bool:
        """A node that refuses what the market asks is asked again with a tenth more, but slowly."""
        asked, wait = self._funds.fees, self._wait(tx)
        is_below = asked is not None and tx.fees.max_fee_per_gas < asked.max_fee_per_gas
        is_late = wait is not None and wait.seconds >= self._context.policy.repeat_seconds
        return is_below or is_late
