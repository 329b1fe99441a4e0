"""Turns queued rewards into a signed mint: intent, nonce and bytes in one database transaction."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from ltzd import telemetry
from ltzd.chain import ltz
from ltzd.operator.allowance import MintAllowance
from ltzd.operator.batches import call_of, numbered
from ltzd.operator.book import Book
from ltzd.operator.desk import Desk
from ltzd.operator.policy import BALANCE, FEES, MINT
from ltzd.operator.purse import Purse
from ltzd.operator.rehearsing import Rehearsal
from ltzd.rules.fees import Fees
from ltzd.rules.transactions import State, Transaction
from ltzd.store import rewards, transactions
from ltzd.store.database import Connection, session
from ltzd.store.rewards import QueuedReward
from ltzd.store.transactions import Intent, OpenTransaction

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Counters:
    """Where a term begins: the lane's next nonce and the next reference's seq."""

    next_nonce: int
    next_seq: int


class Minter:
    """Holds the lane's counters in memory.

    While the term lasts nobody else moves them, and the statement that stores an intent refuses if
    somebody did.
    """

    def __init__(
        self,
        desk: Desk,
        book: Book,
        purse: Purse,
        allowance: MintAllowance,
        rehearsal: Rehearsal,
        counters: Counters,
    ) -> None:
        self._desk = desk
        self._book = book
        self._purse = purse
        self._allowance = allowance
        self._rehearsal = rehearsal
        self._paused: str | None = None
        self._next_nonce = counters.next_nonce
        self._next_seq = counters.next_seq

    async def sign_next(self, at_least: int = 1) -> int:
        """Sign and store the next batch; answers how many rewards it holds.

        0 when fewer than `at_least` wait, or the lane may not send now. Raises LostLane,
        DatabaseUnavailable, NodeUnavailable; nothing is spent then.
        """
        if self._book.held is not None:
            return self._pause(self._book.held)
        fees = self._purse.fees
        if fees is None:
            return self._pause(FEES if self._purse.market else None)
        if self._book.count() >= self._desk.policy.max_in_flight:
            return 0
        async with self._desk.pen:
            worst_wei = ltz.mint_gas_limit(ltz.MAX_BATCH) * fees.max_fee_per_gas
            if not self._purse.can_afford(worst_wei, self._book.reserved_wei()):
                return self._pause(BALANCE)
            return await self._sign(fees, at_least)

    def leave(self) -> None:
        """The term is over: whatever held the lane no longer does so here."""
        self._pause(None)

    async def _sign(self, fees: Fees, at_least: int) -> int:
        async with session(self._desk.pool) as connection:
            waiting = await rewards.queued(connection, ltz.MAX_BATCH, self._allowance.hopeless)
            if len(waiting) < at_least:
                return self._pause(None) if not waiting else 0
            fitting = self._allowance.fit(waiting, self._book.minting())
            if not fitting:
                return self._pause("mint_limit")
            batch = await self._rehearsal.passing(connection, fitting, self._next_seq)
            if not batch:
                return self._pause("would_revert")
            self._pause(None)
            tx = await self._store(connection, self._mint(batch), fees)
        self._book.add(tx)
        telemetry.BATCH_REWARDS.observe(len(batch))
        telemetry.TRANSACTIONS_CREATED.labels(MINT).inc()
        return len(batch)

    def _pause(self, reason: str | None) -> int:
        """Say once why nothing is signed although rewards wait; None: nothing holds the lane."""
        if reason != self._paused:
            if self._paused is not None:
                telemetry.LANES_PAUSED.labels(MINT, self._paused).set(0)
            if reason is not None:
                telemetry.LANES_PAUSED.labels(MINT, reason).set(1)
                log.warning("lane.paused", reason=reason)
            self._paused = reason
        return 0

    def _mint(self, batch: Sequence[QueuedReward]) -> Intent:
        """The batch as an intent; a reward keeps the seq it has, others get the counter's next."""
        seqs = numbered(batch, self._next_seq)
        return Intent(
            nonce=self._next_nonce,
            to=self._desk.target.ltz,
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
