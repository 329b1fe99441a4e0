"""Turns queued rewards into a signed mint: intent, nonce and bytes in one database transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ltzd import telemetry
from ltzd.chain import ltz
from ltzd.operator.allowance import MintAllowance
from ltzd.operator.batches import call_of, numbered
from ltzd.operator.book import Book
from ltzd.operator.desk import Desk
from ltzd.operator.gate import Gate
from ltzd.operator.policy import BALANCE, MINT_LIMIT, WOULD_REVERT, MintTarget, SameProcess
from ltzd.operator.rehearsing import Rehearsal
from ltzd.rules.fees import Fees
from ltzd.rules.transactions import Place, State, Transaction
from ltzd.store import rewards, transactions
from ltzd.store.database import Connection, session
from ltzd.store.rewards import QueuedReward
from ltzd.store.transactions import Intent, OpenTransaction


@dataclass(frozen=True, slots=True)
class Counters:
    """Where a term begins: the lane's next nonce, the next reference's seq, and the brand whose
    turn was the last one."""

    next_nonce: int
    next_seq: int
    last_brand: bytes = b""


class Minter:
    """Holds the lane's counters in memory.

    While the term lasts nobody else moves them, and the statement that stores an intent refuses if
    somebody did.
    """

    largest = ltz.MAX_BATCH
    enough = 20
    """Twice as many would save each of them 1,000 of 31,000 gas."""

    def __init__(
        self,
        desk: Desk,
        book: Book,
        gate: Gate,
        target: MintTarget,
        rehearsal: Rehearsal,
        counters: Counters,
        process: SameProcess,
    ) -> None:
        self._desk = desk
        self._book = book
        self._gate = gate
        self._target = target
        self._allowance = MintAllowance(desk.node, target, desk.lane.wallet)
        self._rehearsal = rehearsal
        self._process = process
        self._next_nonce = counters.next_nonce
        self._next_seq = counters.next_seq
        self._last_brand = counters.last_brand

    async def sign_next(self, at_least: int = 1) -> int:
        fees = self._gate.fees()
        if fees is None:
            return 0
        async with self._desk.pen:
            gas = ltz.mint_gas_limit(ltz.MAX_BATCH)
            if not self._gate.is_soon_mined(gas):
                return 0
            if not self._gate.can_afford(gas * fees.max_fee_per_gas):
                return self._gate.pause(BALANCE)
            return await self._sign(fees, at_least)

    def on_the_way(self) -> int:
        return self._process.on_the_way()

    def leave(self) -> None:
        self._gate.pause(None)

    async def look(self) -> None:
        await self._allowance.look()

    async def seen(self) -> Mapping[int, Place]:
        """A mint needs no receipt, which would repeat all its logs."""
        async with session(self._desk.pool) as connection:
            return await transactions.minted(connection, self._desk.lane)

    def reverted(self) -> None:
        self._rehearsal.is_careful = True

    async def _sign(self, fees: Fees, at_least: int) -> int:
        async with session(self._desk.pool) as connection:
            await self._allowance.sort_out(connection, self._desk.lane)
            saver = self._allowance.saver
            waiting = await rewards.queued(connection, ltz.MAX_BATCH, self._last_brand, saver)
            if len(waiting) < at_least:
                return self._gate.pause(None) if not waiting else 0
            fitting = self._allowance.fit(waiting, self._book.minting())
            if not fitting:
                self._pass_the_turn(waiting, saver)
                return self._gate.pause(MINT_LIMIT)
            batch = await self._rehearsal.passing(connection, fitting, self._next_seq)
            if not batch:
                return self._gate.pause(WOULD_REVERT)
            self._gate.pause(None)
            tx = await self._store(connection, self._mint(batch), fees)
        self._pass_the_turn(batch, saver)
        self._book.add(tx)
        telemetry.BATCH_REWARDS.observe(len(batch))
        telemetry.TRANSACTIONS_CREATED.labels(self._desk.lane.kind).inc()
        return len(batch)

    def _pass_the_turn(self, served: Sequence[QueuedReward], saver: UUID | None) -> None:
        """The next turn begins behind the brand that came last; no payment and no saver is a turn.

        `served` is in the order of `rewards.queued`.
        """
        brands = [one.brand_id for one in served if not one.is_payment and one.id != saver]
        if brands:
            self._last_brand = brands[-1]

    def _mint(self, batch: Sequence[QueuedReward]) -> Intent:
        """The batch as an intent; a reward keeps the seq it has, others get the counter's next."""
        seqs = numbered(batch, self._next_seq)
        return Intent(
            nonce=self._next_nonce,
            to=self._target.ltz,
            data=call_of(batch, seqs),
            gas_limit=ltz.mint_gas_limit(len(batch)),
            ltz=sum(reward.ltz for reward in batch),
            rewards=[reward.id for reward in batch],
            seqs=seqs,
            next_seq=self._next_seq,
            fresh_seqs=sum(reward.seq is None for reward in batch),
        )

    async def _store(self, connection: Connection, mint: Intent, fees: Fees) -> OpenTransaction:
        attempt = self._desk.sign(mint.nonce, mint.to, mint.data, mint.gas_limit, fees)
        row_id, created_at = await transactions.store_signed(
            connection, self._desk.lane, mint, attempt
        )
        self._next_nonce += 1
        self._next_seq += mint.fresh_seqs
        return OpenTransaction(
            id=row_id,
            nonce=mint.nonce,
            gas_limit=mint.gas_limit,
            fees=fees,
            tx=Transaction(State.SIGNED),
            hashes=(attempt.hash,),
            raw=attempt.raw,
            created_at=created_at,
            ltz=mint.ltz,
            rewards=tuple(mint.rewards),
        )
