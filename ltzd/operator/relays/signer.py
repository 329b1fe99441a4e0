"""Turns queued relays into signed transactions, one each, many in one database transaction.

What is queued was simulated a moment ago; nothing is simulated here. A relay that names a wallet is
that lane's alone, and whichever lane is free takes the others.
"""

from collections.abc import Mapping, Sequence

import structlog

from ltzd import telemetry
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.policy import BALANCE
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import Call, TransactionSigner
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.sendable import Obstacle, min_gas_limit
from ltzd.rules.operator.transactions import Inclusion, State, Transaction
from ltzd.store.database import Connection, transaction
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.store.relayer import relays
from ltzd.store.relayer.relays import QueuedRelay, SignedRelay
from ltzd.store.wakeups import RELAYED, WakeupHub

log = structlog.get_logger()


class RelaySigner:
    """Holds the lane's next nonce in memory, as `minting.Minter` does."""

    largest = 100
    enough = 1
    """Each is a transaction of its own: nothing is gained by gathering."""

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
            most = min(self.largest, self._guard.room())
            waiting = await relays.queued(connection, self._context.lane, most)
            if len(waiting) < at_least:
                return self._guard.pause(None) if not waiting else 0
            sendable, refused = self._sorted(waiting, fees)
            if refused:
                await relays.refuse(connection, refused)
            signed = await self._store(connection, sendable, fees) if sendable else []
        # After the commit: what the rows do not have must not be published.
        self._next_nonce += len(signed)
        for tx in signed:
            self._in_flight.add(tx)
        self._note_refused(refused)
        telemetry.TRANSACTIONS_CREATED.labels(self._context.lane.kind).inc(len(signed))
        self._guard.pause(None if signed or refused else BALANCE)
        return len(signed) + len(refused)

    def _note_refused(self, refused: Mapping[int, str]) -> None:
        for relay, reason in refused.items():
            log.error("relay.not_sendable", relay=relay, reason=reason)
        if refused:
            self._wakeups.notify(RELAYED)

    def on_the_way(self) -> int:
        return 0

    def leave(self) -> None:
        self._guard.pause(None)

    async def look(self) -> None:
        """A relay depends on nothing that the lane could know."""

    async def seen(self) -> Mapping[int, Inclusion]:
        """The answer to a relay tells what it cost: only a receipt does."""
        return {}

    def reverted(self) -> None:
        """Each was simulated before it was queued; another's revert says nothing of the next."""

    def abandoned(self, tx: OpenTransaction) -> None:
        """Its relay waits until the nonce is final; the others are calls of their own."""

    def _sorted(
        self, waiting: Sequence[QueuedRelay], fees: Fees
    ) -> tuple[list[QueuedRelay], dict[int, str]]:
        """The oldest relays that may be signed now, and why others never may be.

        As many as the balance covers beside everything in flight.
        """
        sendable: list[QueuedRelay] = []
        refused: dict[int, str] = {}
        beside_wei = self._in_flight.reserved_wei()
        for relay in waiting:
            call = _call(relay)
            obstacle = self._signer.obstacle(call, fees, beside_wei)
            if obstacle is None:
                beside_wei += call.cost_wei(fees)
                sendable.append(relay)
            elif obstacle.is_permanent:
                refused[relay.id] = self._reason(obstacle, call)
            else:
                break
        return sendable, refused

    def _reason(self, obstacle: Obstacle, call: Call) -> str:
        if obstacle is Obstacle.INTRINSIC_GAS:
            least = min_gas_limit(call.data)
            return f"its gas limit of {call.gas_limit} is below the {least} that its data costs"
        most = self._signer.most_gas
        return f"its gas limit of {call.gas_limit} is above the {most} that a block holds"

    async def _store(
        self, connection: Connection, those: Sequence[QueuedRelay], fees: Fees
    ) -> list[OpenTransaction]:
        signed = self._signed(those, fees)
        rows = await relays.store_signed(connection, self._context.lane, signed)
        return [
            OpenTransaction(
                id=row.id,
                nonce=one.nonce,
                gas_limit=one.relay.gas_limit,
                fees=fees,
                tx=Transaction(State.SIGNED),
                hashes=(one.attempt.hash,),
                raw=one.attempt.raw,
                created_at=row.created_at,
            )
            for one, row in zip(signed, rows, strict=True)
        ]

    def _signed(self, those: Sequence[QueuedRelay], fees: Fees) -> list[SignedRelay]:
        signed: list[SignedRelay] = []
        beside_wei = self._in_flight.reserved_wei()
        for nonce, relay in enumerate(those, start=self._next_nonce):
            call = _call(relay)
            signed.append(
                SignedRelay(relay, nonce, self._signer.sign(nonce, call, fees, beside_wei))
            )
            beside_wei += call.cost_wei(fees)
        return signed


def _call(relay: QueuedRelay) -> Call:
    return Call(relay.to, relay.data, relay.gas_limit)
