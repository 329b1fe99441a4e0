"""Signs queued relays, each in a transaction of its own, many in one database transaction.

Relays were simulated before they were queued, so none is simulated here. The lane claims relays,
signs them, and stores the transactions. No database transaction is open meanwhile: the signer may
be at the other end of a network. A crash at any point leaves claims, which the wallet's next term
takes again and other lanes take over.

A relay that names a wallet waits for that lane; any other relay is signed by whichever lane is
free. Each user's relays keep their order over all lanes (`store/relayer/claims.py`).
"""

import math
from collections.abc import Mapping, Sequence

import structlog

from ltzd import telemetry
from ltzd.chain.node.view import ChainView
from ltzd.errors import SignerUnavailable
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.policy import BALANCE, DRAINING
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionCall, TransactionSigner, Unsendable
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.sendable import Obstacle, min_gas_limit
from ltzd.rules.operator.transactions import Inclusion
from ltzd.store.database import session, transaction
from ltzd.store.operator import lanes
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.store.relayer import claims, relays
from ltzd.store.relayer.claims import ClaimedRelay
from ltzd.store.wakeups import RELAYED, RELAYS, WakeupHub

log = structlog.get_logger()


class RelaySigner:
    """Keeps the lane's next nonce in memory, as `MintSigner` does."""

    max_batch = 100
    sufficient_batch = 1
    """Relays share no transaction, so they need not gather."""

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        signer: TransactionSigner,
        wakeups: WakeupHub,
        next_nonce: int,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._guard = guard
        self._signer = signer
        self._wakeups = wakeups
        self._next_nonce = next_nonce
        self._may_hold_claims = True
        """Also of an earlier term."""
        self._leaves_queue_until = -math.inf

    async def sign_next(self, at_least: int = 1) -> int:
        fees = self._guard.fees(finishes=True)
        if fees is None:
            await self._give_back()
            return 0
        async with self._context.signing_lock:
            if self._context.clock() < self._leaves_queue_until:
                return 0
            await self._give_back()
            claimed = await self._claim()
            if len(claimed) < at_least:
                await self._give_back()
                self._resume()
                return 0
            sendable, refused = self._sort(claimed, fees)
            if refused:
                await self._refuse(refused)
                return len(refused)
            if not sendable:
                await self._leave_queue()
                return 0
            return await self._sign(claimed, sendable, fees)

    async def _claim(self) -> list[ClaimedRelay]:
        """Claim as many relays as may be in flight; one, if the signer failed the last time.

        The failing signer of one wallet then delays a single relay, which the other lanes could
        have sent, for as long as it takes to fail again.
        """
        limit = min(self.max_batch, self._guard.free_slots())
        if self._guard.is_signer_doubtful:
            limit = min(limit, 1)
        self._may_hold_claims = True
        async with session(self._context.pool) as connection:
            claimed = await claims.claim(
                connection, self._context.lane, limit, only_named=self._guard.is_draining
            )
        self._may_hold_claims = bool(claimed)
        return claimed

    async def _sign(
        self, claimed: Sequence[ClaimedRelay], sendable: Sequence[ClaimedRelay], fees: Fees
    ) -> int:
        """Sign and store; return how many relays are settled, those that the lane lost included."""
        calls, reserved_wei = list(map(_call, sendable)), self._in_flight.reserved_wei()
        cost_wei = sum(call.max_cost_wei(fees, self._signer.l1_costs) for call in calls)
        with self._in_flight.reserving(cost_wei):
            try:
                attempts = await self._signer.sign_all(self._next_nonce, calls, fees, reserved_wei)
            except (SignerUnavailable, Unsendable):
                if await self._give_back():
                    self._wakeups.notify(RELAYS)
                raise
            async with session(self._context.pool) as connection:
                signed = await claims.store_signed(
                    connection, self._context.lane, sendable, attempts, self._next_nonce
                )
        # After the commit: a transaction without a row must not be published.
        self._next_nonce += len(signed)
        for tx in signed:
            self._in_flight.add(tx)
        telemetry.TRANSACTIONS_CREATED.labels(self._context.lane.kind).inc(len(signed))
        if len(signed) < len(sendable):
            log.info("relay.claim_lost", relay=sendable[len(signed)].id)
            return len(signed) + 1
        if len(sendable) < len(claimed):
            await self._leave_queue()
        else:
            self._may_hold_claims = False
            self._resume()
        return len(signed)

    async def _leave_queue(self) -> None:
        """Leave relays that this wallet cannot pay for to the other lanes for a while.

        They are woken when this lane's reason to wait is new, and look by themselves every second.
        """
        self._leaves_queue_until = self._context.clock() + self._context.policy.poll_seconds
        is_new = self._guard.reason != BALANCE
        self._guard.pause(BALANCE)
        if await self._give_back() and is_new:
            self._wakeups.notify(RELAYS)

    async def _give_back(self) -> int:
        """Release the lane's claims; return how many."""
        if not self._may_hold_claims:
            return 0
        async with session(self._context.pool) as connection:
            released = await claims.give_back(connection, self._context.lane)
        self._may_hold_claims = False
        return released

    async def _refuse(self, refused: Mapping[int, str]) -> None:
        """Fail relays that may never be signed; the others are claimed again."""
        async with transaction(self._context.pool) as connection:
            await lanes.require_term(connection, self._context.lane)
            await relays.refuse(connection, refused)
        for relay, reason in refused.items():
            log.error("relay.not_sendable", relay=relay, reason=reason)
        self._wakeups.notify(RELAYED)
        self._wakeups.notify(RELAYS)

    def _resume(self) -> None:
        if self._guard.is_draining:
            self._guard.pause(DRAINING)
        else:
            self._guard.resume()

    def expected_items(self) -> int:
        return 0

    def end_term(self) -> None:
        self._guard.resume()

    async def refresh(self, view: ChainView) -> None:
        """Does nothing: the chain limits no relays."""

    async def indexed_inclusions(self) -> Mapping[int, Inclusion]:
        """Returns none: only a receipt tells what a relay cost, and its answer needs that."""
        return {}

    def on_reverted(self, tx: OpenTransaction, inclusion: Inclusion) -> None:
        """Does nothing: relays are simulated one by one, so one revert says nothing of the next."""

    def on_abandoned(self, tx: OpenTransaction) -> None:
        """Does nothing: the relay waits until its nonce is final, and no other depends on it."""

    def _sort(
        self, claimed: Sequence[ClaimedRelay], fees: Fees
    ) -> tuple[list[ClaimedRelay], dict[int, str]]:
        """The oldest relays that may be signed now, and by id why others never may be.

        The first are as many as the balance covers beside everything in flight.
        """
        sendable: list[ClaimedRelay] = []
        refused: dict[int, str] = {}
        reserved_wei = self._in_flight.reserved_wei()
        for relay in claimed:
            call = _call(relay)
            obstacle = self._signer.obstacle(call, fees, reserved_wei)
            if obstacle is None:
                reserved_wei += call.max_cost_wei(fees, self._signer.l1_costs)
                sendable.append(relay)
            elif obstacle.is_permanent:
                refused[relay.id] = self._reason(obstacle, call)
            else:
                break
        return sendable, refused

    def _reason(self, obstacle: Obstacle, call: TransactionCall) -> str:
        if obstacle is Obstacle.INTRINSIC_GAS:
            least = min_gas_limit(call.data)
            return f"its gas limit of {call.gas_limit} is below the {least} that its data costs"
        most = self._signer.max_gas_limit
        return f"its gas limit of {call.gas_limit} is above the {most} that a block holds"


def _call(relay: ClaimedRelay) -> TransactionCall:
    return TransactionCall(relay.to, relay.data, relay.gas_limit)
