"""Turns queued relays into signed transactions, one each, many in one database transaction.

What is queued was simulated a moment ago; nothing is simulated here. A relay that names a wallet is
that lane's alone, and whichever lane is free takes the others.
"""

from collections.abc import Mapping, Sequence

from ltzd import telemetry
from ltzd.operator.book import Book
from ltzd.operator.desk import Desk
from ltzd.operator.gate import Gate
from ltzd.operator.policy import BALANCE
from ltzd.rules.fees import Fees
from ltzd.rules.transactions import Place, State, Transaction
from ltzd.store import relays
from ltzd.store.database import Connection, transaction
from ltzd.store.relays import QueuedRelay, SignedRelay
from ltzd.store.transactions import Attempt, OpenTransaction


class RelayWriter:
    """Holds the lane's next nonce in memory, as `minting.Minter` does."""

    largest = 100
    enough = 1
    """Each is a transaction of its own: nothing is gained by gathering."""

    def __init__(self, desk: Desk, book: Book, gate: Gate, next_nonce: int) -> None:
        self._desk = desk
        self._book = book
        self._gate = gate
        self._next_nonce = next_nonce

    async def sign_next(self, at_least: int = 1) -> int:
        fees = self._gate.fees()
        if fees is None:
            return 0
        async with self._desk.pen, transaction(self._desk.pool) as connection:
            most = min(self.largest, self._gate.room())
            waiting = await relays.queued(connection, self._desk.lane, most)
            if len(waiting) < at_least:
                return self._gate.pause(None) if not waiting else 0
            affordable = self._affordable(waiting, fees)
            if not affordable:
                return self._gate.pause(BALANCE)
            self._gate.pause(None)
            signed = await self._store(connection, affordable, fees)
        # After the commit: what the rows do not have must not be published.
        self._next_nonce += len(signed)
        for tx in signed:
            self._book.add(tx)
        telemetry.TRANSACTIONS_CREATED.labels(self._desk.lane.kind).inc(len(signed))
        return len(signed)

    def on_the_way(self) -> int:
        return 0

    def leave(self) -> None:
        self._gate.pause(None)

    async def look(self) -> None:
        """A relay depends on nothing that the lane could know."""

    async def seen(self) -> Mapping[int, Place]:
        """The answer to a relay tells what it cost: only a receipt does."""
        return {}

    def reverted(self) -> None:
        """Each was simulated before it was queued; another's revert says nothing of the next."""

    def _affordable(self, waiting: Sequence[QueuedRelay], fees: Fees) -> list[QueuedRelay]:
        """As many, from the oldest on, as the balance covers beside everything in flight."""
        found: list[QueuedRelay] = []
        worst_wei = 0
        for relay in waiting:
            worst_wei += relay.gas_limit * fees.max_fee_per_gas
            if not self._gate.can_afford(worst_wei):
                break
            found.append(relay)
        return found

    async def _store(
        self, connection: Connection, those: Sequence[QueuedRelay], fees: Fees
    ) -> list[OpenTransaction]:
        signed = [
            SignedRelay(relay, nonce, self._sign(relay, nonce, fees))
            for nonce, relay in enumerate(those, start=self._next_nonce)
        ]
        rows = await relays.store_signed(connection, self._desk.lane, signed)
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

    def _sign(self, relay: QueuedRelay, nonce: int, fees: Fees) -> Attempt:
        return self._desk.sign(nonce, relay.to, relay.data, relay.gas_limit, fees)
