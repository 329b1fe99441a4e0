"""Signs queued relays, each in a transaction of its own, many in one database transaction.

Relays were simulated before they were queued, so none is simulated here. The lane claims relays,
signs them, and stores the transactions. No database transaction is open meanwhile: the signer may
be at the other end of a network. A crash at any point leaves claims, which the wallet's next term
takes again and other lanes take over.

While its queue is empty, a lane whose key is in this process takes relays from the admission
itself (`admit`), and stores them together with their transactions.

A relay that names a wallet waits for that lane; any other relay is signed by whichever lane is
free. Each user's relays keep their order over all lanes (`store/relayer/claims.py`).
"""

import asyncio
import math
from collections.abc import Mapping, Sequence

import structlog

from ltzd import telemetry
from ltzd.chain.node.view import ChainView
from ltzd.errors import LaneLost, SignerUnavailable, Unavailable
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork
from ltzd.operator.policy import DRAINING, ROLE
from ltzd.operator.relays.roles import RelayRoles
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionCall, TransactionSigner, Unsendable
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.sendable import Obstacle, min_gas_limit
from ltzd.rules.operator.transactions import Inclusion
from ltzd.rules.relayer.admission import NewRelay
from ltzd.store.database import session, transaction
from ltzd.store.operator import lanes
from ltzd.store.operator.transactions import Attempt, OpenTransaction
from ltzd.store.relayer import claims, relays, signed_relays
from ltzd.store.relayer.claims import ClaimedRelay
from ltzd.store.relayer.direct_lanes import DirectLanes
from ltzd.store.relayer.signed_relays import SentRelay
from ltzd.store.wakeups import RELAYED, RELAYS, WakeupHub
from ltzd.values import Address

log = structlog.get_logger()


class RelaySigner(LaneWork):
    """Keeps the lane's next nonce in memory, as `MintSigner` does.

    Relays share no transaction, so they need not gather. Only a receipt tells what a relay cost,
    and the caller is told the cost. An abandoned relay waits until its nonce is final, and no
    other relay depends on it.
    """

    max_batch = 100

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        signer: TransactionSigner,
        wakeups: WakeupHub,
        next_nonce: int,
        roles: RelayRoles,
        direct_lanes: DirectLanes | None = None,
    ) -> None:
        """`direct_lanes` offers this signer to admissions until `end_term`."""
        self._context = context
        self._in_flight = in_flight
        self._guard = guard
        self._signer = signer
        self._wakeups = wakeups
        self._next_nonce = next_nonce
        self._roles = roles
        self._may_hold_claims = True
        """Whether the lane may hold claims, those of an earlier term included."""
        self._leaves_queue_until = -math.inf
        self._has_emptied_queue = False
        """Whether the last claim left no relay behind that this lane may send."""
        self._unaffordable_gas: int | None = None
        """The least gas limit of the relays that the last claim left behind for want of funds."""
        self._failure: Unavailable | None = None
        """The error with which the next `sign_next` ends the term."""
        self._direct_lanes = direct_lanes or DirectLanes()
        self._direct_lanes.add(self)

    @property
    def wallet(self) -> Address:
        return self._context.lane.wallet

    @property
    def direct_slots(self) -> int:
        """How many relays `admit` takes now; 0 while relays wait in the queue, which come first."""
        is_ready = self._has_emptied_queue and self._failure is None and self._roles.are_granted
        return min(self.max_batch, self._guard.free_slots()) if is_ready else 0

    async def admit(self, relays: Sequence[NewRelay]) -> list[int | None]:
        """As `DirectLane.admit`; the relays are then published as relays of the queue are."""
        async with self._context.signing_lock:
            fees = self._guard.fees_or_pause()
            if fees is None or self.direct_slots == 0:
                return []
            calls = self._affordable(relays[: self.direct_slots], fees)
            if not calls:
                return []
            cost_wei = self._max_cost_wei(calls, fees)
            reserved_wei = self._in_flight.reserved_wei()
            with self._in_flight.reserving(cost_wei):
                attempts = await self._signer.sign_all(self._next_nonce, calls, fees, reserved_wei)
                sent = await self._store(relays[: len(calls)], attempts)
        await asyncio.sleep(0)  # The publisher sends the bytes before their lines are logged.
        self._note_signed([(relay.id, relay.transaction) for relay in sent])
        ids: list[int | None] = [relay.id for relay in sent]
        return ids + [None] * (len(calls) - len(sent))

    def _affordable(self, relays: Sequence[NewRelay], fees: Fees) -> list[TransactionCall]:
        """The calls of the first relays, as many as may be signed now."""
        calls: list[TransactionCall] = []
        reserved_wei = self._in_flight.reserved_wei()
        for relay in relays:
            call = TransactionCall(relay.plan.to, relay.plan.data, relay.gas_limit)
            if self._signer.obstacle(call, fees, reserved_wei) is not None:
                break
            reserved_wei += call.max_cost_wei(fees, self._signer.l1_costs)
            calls.append(call)
        return calls

    async def _store(
        self, relays: Sequence[NewRelay], attempts: Sequence[Attempt]
    ) -> list[SentRelay]:
        """Insert the relays, and wake the publisher for them before the connection is given back.

        The statement is its own database transaction: it has committed once it returns.
        """
        try:
            async with session(self._context.pool) as connection:
                sent = await signed_relays.insert(
                    connection, self._context.lane, self._next_nonce, relays, attempts
                )
                self._next_nonce += len(sent)
                self._in_flight.add(*(relay.transaction for relay in sent))
                self._wakeups.notify(RELAYS)
                return sent
        except (Unavailable, asyncio.CancelledError) as error:
            # Only the next term can tell whether the relays are stored: `sign_next` ends this term.
            self._failure = error if isinstance(error, Unavailable) else LaneLost("A write was cut")
            self._wakeups.notify(RELAYS)
            raise

    async def sign_next(self, at_least: int = 1) -> int:
        if self._failure is not None:
            raise self._failure
        fees = self._guard.fees_or_pause(finishes=True)
        if fees is None:
            self._has_emptied_queue = False
            await self._give_back()
            return 0
        async with self._context.signing_lock:
            if self._context.clock() < self._leaves_queue_until:
                self._has_emptied_queue = False
                return 0
            await self._give_back()
            if not self._roles.are_granted:
                self._has_emptied_queue = False
                self._guard.pause(ROLE)
                return 0
            claimed = await self._claim(fees)
            if self._guard.fees_or_pause(finishes=True) is None:  # The lane was closed meanwhile.
                self._has_emptied_queue = False
                await self._give_back()
                return 0
            if len(claimed) < at_least:
                await self._give_back()
                self._resume(fees)
                return 0
            sendable, refused, obstacle = self._sort(claimed, fees)
            if refused:
                await self._refuse(refused)
                return len(refused)
            if sendable:
                return await self._sign(sendable, fees, obstacle)
            if obstacle is not None:
                await self._leave_queue(obstacle)
            return 0

    async def _claim(self, fees: Fees) -> list[ClaimedRelay]:
        """Claim as many relays as may be in flight; one, if the signer failed the last time.

        The failing signer of one wallet then delays a single relay, which the other lanes could
        have sent, for as long as it takes to fail again. Relays for which the wallet cannot pay
        stay in the queue, however many they are.
        """
        limit = min(self.max_batch, self._guard.free_slots())
        if self._guard.is_signer_doubtful:
            limit = min(limit, 1)
        self._may_hold_claims, lane = True, self._context.lane
        # A relay that no block holds is refused, whatever it would cost.
        unaffordable = range(self._guard.affordable_gas(fees) + 1, self._signer.max_gas_limit + 1)
        async with session(self._context.pool) as connection:
            claimed = await claims.claim(
                connection,
                lane,
                limit,
                only_named=self._guard.is_draining,
                unaffordable=unaffordable,
            )
            self._unaffordable_gas = None
            if len(claimed) < limit and unaffordable:
                self._unaffordable_gas = await claims.least_gas_in(connection, lane, unaffordable)
        self._may_hold_claims = bool(claimed)
        has_emptied = len(claimed) < limit and self._unaffordable_gas is None
        self._has_emptied_queue = has_emptied and not self._guard.is_draining
        return claimed

    async def _sign(
        self, sendable: Sequence[ClaimedRelay], fees: Fees, obstacle: Obstacle | None
    ) -> int:
        """Sign and store; return how many relays are settled, those that the lane lost included.

        `obstacle` keeps the claimed relays behind these from being signed.
        """
        calls, reserved_wei = list(map(_call, sendable)), self._in_flight.reserved_wei()
        with self._in_flight.reserving(self._max_cost_wei(calls, fees)):
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
        self._add([(relay.id, tx) for relay, tx in zip(sendable, signed, strict=False)])
        if len(signed) < len(sendable):
            log.info("relay.claim_lost", relay=sendable[len(signed)].id)
            return len(signed) + 1
        if obstacle is not None:
            await self._leave_queue(obstacle)
        else:
            self._may_hold_claims = False
            self._resume(fees)
        return len(signed)

    def _add(self, signed: Sequence[tuple[int, OpenTransaction]]) -> None:
        """Call it after the commit, with each relay's id: bytes without a row must not go out."""
        self._next_nonce += len(signed)
        self._in_flight.add(*(tx for _, tx in signed))
        self._note_signed(signed)

    def _note_signed(self, signed: Sequence[tuple[int, OpenTransaction]]) -> None:
        if signed:
            transactions = [(relay, tx.id, tx.nonce) for relay, tx in signed]
            log.info("relays.signed", relays_transactions_nonces=transactions)
        telemetry.TRANSACTIONS_CREATED.labels(self._context.lane.kind).inc(len(signed))

    def _max_cost_wei(self, calls: Sequence[TransactionCall], fees: Fees) -> int:
        return sum(call.max_cost_wei(fees, self._signer.l1_costs) for call in calls)

    async def _leave_queue(self, obstacle: Obstacle) -> None:
        """Leave relays that this wallet may not send now to the other lanes for a while.

        They are woken when this lane's reason to wait is new, and check by themselves every second.
        """
        self._leaves_queue_until = self._context.clock() + self._context.policy.poll_seconds
        self._has_emptied_queue = False
        is_new = self._guard.reason != obstacle.value
        self._guard.pause(obstacle.value)
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

    def _resume(self, fees: Fees) -> None:
        gas = self._unaffordable_gas
        if self._guard.is_draining:
            self._guard.pause(DRAINING)
        elif gas is None or self._guard.can_afford(gas * fees.max_fee_per_gas):
            self._guard.resume()
        else:
            self._wait_for_funds()

    def _wait_for_funds(self) -> None:
        """Some relays wait for a higher balance: wake the lanes that may have one."""
        is_new = self._guard.reason != Obstacle.FUNDS.value
        self._guard.pause(Obstacle.FUNDS.value)
        if is_new:
            self._wakeups.notify(RELAYS)

    def end_term(self) -> None:
        self._direct_lanes.remove(self)

    async def refresh(self, view: ChainView) -> None:
        await self._roles.refresh(view)

    def on_reverted(self, tx: OpenTransaction, inclusion: Inclusion) -> None:
        """Relays are simulated one by one, so a revert may mean that the wallet has lost a role."""
        self._roles.doubt()

    def _sort(
        self, claimed: Sequence[ClaimedRelay], fees: Fees
    ) -> tuple[list[ClaimedRelay], dict[int, str], Obstacle | None]:
        """Sort claimed relays: those to sign now, the reasons by id of those never to sign, and the
        obstacle that keeps the rest waiting.

        The relays to sign are those that the balance covers beside everything in flight. A relay
        that is not covered keeps its user's later relays waiting, and no other user's.
        """
        sendable: list[ClaimedRelay] = []
        refused: dict[int, str] = {}
        waiting: dict[Address | None, Obstacle] = {}
        reserved_wei = self._in_flight.reserved_wei()
        for relay in claimed:
            if relay.user in waiting:
                continue
            call = _call(relay)
            obstacle = self._signer.obstacle(call, fees, reserved_wei)
            if obstacle is None:
                reserved_wei += call.max_cost_wei(fees, self._signer.l1_costs)
                sendable.append(relay)
            elif obstacle.is_permanent:
                refused[relay.id] = self._reason(obstacle, call)
            else:
                waiting[relay.user] = obstacle
        return sendable, refused, next(iter(waiting.values()), None)

    def _reason(self, obstacle: Obstacle, call: TransactionCall) -> str:
        if obstacle is Obstacle.INTRINSIC_GAS:
            least = min_gas_limit(call.data)
            return f"its gas limit of {call.gas_limit} is below the {least} that its data costs"
        most = self._signer.max_gas_limit
        return f"its gas limit of {call.gas_limit} is above the {most} that a block holds"


def _call(relay: ClaimedRelay) -> TransactionCall:
    return TransactionCall(relay.to, relay.data, relay.gas_limit)
