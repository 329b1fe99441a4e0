"""Signs queued relays, each in a transaction of its own, many in one database transaction.

Relays were simulated before they were queued, so none is simulated here. A relay that names a
wallet waits for that lane; any other relay is signed by whichever lane is free.
"""

from collections.abc import Mapping, Sequence

import structlog

from ltzd import telemetry
from ltzd.chain.node.view import ChainView
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.policy import BALANCE
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionCall, TransactionSigner
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.sendable import Obstacle, min_gas_limit
from ltzd.rules.operator.transactions import Inclusion
from ltzd.store.database import Connection, transaction
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.store.relayer import relays
from ltzd.store.relayer.relays import QueuedRelay
from ltzd.store.wakeups import RELAYED, WakeupHub

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

    async def sign_next(self, at_least: int = 1) -> int:
        fees = self._guard.fees()
        if fees is None:
            return 0
        async with self._context.signing_lock, transaction(self._context.pool) as connection:
            limit = min(self.max_batch, self._guard.free_slots())
            waiting = await relays.queued(connection, self._context.lane, limit)
            if len(waiting) < at_least:
                if not waiting:
                    self._guard.resume()
                return 0
            sendable, refused = self._sort(waiting, fees)
            if refused:
                await relays.refuse(connection, refused)
            signed = await self._store(connection, sendable, fees) if sendable else []
        # After the commit: a transaction without a row must not be published.
        self._next_nonce += len(signed)
        for tx in signed:
            self._in_flight.add(tx)
        self._report_refused(refused)
        telemetry.TRANSACTIONS_CREATED.labels(self._context.lane.kind).inc(len(signed))
        if signed or refused:
            self._guard.resume()
        else:
            self._guard.pause(BALANCE)
        return len(signed) + len(refused)

    def _report_refused(self, refused: Mapping[int, str]) -> None:
        for relay, reason in refused.items():
            log.error("relay.not_sendable", relay=relay, reason=reason)
        if refused:
            self._wakeups.notify(RELAYED)

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
        self, waiting: Sequence[QueuedRelay], fees: Fees
    ) -> tuple[list[QueuedRelay], dict[int, str]]:
        """The oldest relays that may be signed now, and by id why others never may be.

        The first are as many as the balance covers beside everything in flight.
        """
        sendable: list[QueuedRelay] = []
        refused: dict[int, str] = {}
        reserved_wei = self._in_flight.reserved_wei()
        for relay in waiting:
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

    async def _store(
        self, connection: Connection, sendable: Sequence[QueuedRelay], fees: Fees
    ) -> list[OpenTransaction]:
        attempts = await self._signer.sign_all(
            self._next_nonce, list(map(_call, sendable)), fees, self._in_flight.reserved_wei()
        )
        return await relays.store_signed(
            connection, self._context.lane, sendable, attempts, self._next_nonce
        )


def _call(relay: QueuedRelay) -> TransactionCall:
    return TransactionCall(relay.to, relay.data, relay.gas_limit)
