"""Turns queued rewards into a signed mint: intent, nonce and bytes in one database transaction."""

import asyncio
import collections
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from ltzd import telemetry
from ltzd.chain import ltz
from ltzd.chain.rpc import RpcError
from ltzd.chain.signing import Unsigned
from ltzd.operator.allowance import MintAllowance
from ltzd.operator.book import Book
from ltzd.operator.desk import Desk
from ltzd.operator.policy import MINT
from ltzd.operator.purse import Purse
from ltzd.rules.fees import Fees
from ltzd.rules.transactions import State, Transaction
from ltzd.store import rewards, transactions
from ltzd.store.database import Connection, session
from ltzd.store.rewards import QueuedReward
from ltzd.store.transactions import Attempt, Intent, OpenTransaction
from ltzd.values import LTZ, Reference, reward_reference

log = structlog.get_logger()

_SIMULATION_PAUSE_SECONDS = 1.0
_PARTS_TRIED = 14
"""Of a batch that would revert: halves, quarters and eighths."""


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
        self, desk: Desk, book: Book, purse: Purse, allowance: MintAllowance, counters: Counters
    ) -> None:
        self._desk = desk
        self._book = book
        self._purse = purse
        self._allowance = allowance
        self._paused: str | None = None
        self._simulates_from = 0.0
        self._next_nonce = counters.next_nonce
        self._next_seq = counters.next_seq
        self.is_careful = False
        """After a mint reverted, each batch is simulated first, until one passes."""

    async def sign_next(self) -> bool:
        """Sign and store the next batch; False when nothing waits or the lane may not send now.

        Raises LostLane, DatabaseUnavailable, NodeUnavailable; nothing is spent then.
        """
        fees = self._purse.fees
        if fees is None or self._book.count() >= self._desk.policy.max_in_flight:
            return False
        if not self._purse.can_afford(ltz.mint_gas_limit(ltz.MAX_BATCH), self._book.reserved_wei()):
            return self._pause("balance")
        async with session(self._desk.pool) as connection:
            waiting = await rewards.queued(connection, ltz.MAX_BATCH, self._allowance.hopeless)
            batch = self._allowance.fit(waiting, self._book.minting())
            if not batch:
                return self._pause("mint_limit" if waiting else None)
            mint = await self._sound(batch)
            if mint is None:
                return self._pause("would_revert")
            self._pause(None)
            tx = await self._store(connection, mint, fees)
        self._book.add(tx)
        telemetry.BATCH_REWARDS.observe(len(mint.rewards))
        telemetry.TRANSACTIONS_CREATED.labels(MINT).inc()
        return True

    def _pause(self, reason: str | None) -> bool:
        """Say once why nothing is signed although rewards wait; None: nothing holds the lane."""
        if reason != self._paused:
            if self._paused is not None:
                telemetry.LANES_PAUSED.labels(MINT, self._paused).set(0)
            if reason is not None:
                telemetry.LANES_PAUSED.labels(MINT, reason).set(1)
                log.warning("lane.paused", reason=reason)
            self._paused = reason
        return False

    async def _sound(self, batch: Sequence[QueuedReward]) -> Intent | None:
        """The batch, or a part of it that does not revert if it may; None when none was found.

        It may after a revert, and always with a reward whose mint has failed before: that is in the
        rows, so it outlasts the term. One bad reward does not hold up the others.
        """
        mint = self._mint(batch)
        if not self.is_careful and mint.fresh_seqs == len(batch):
            return mint
        now = asyncio.get_running_loop().time()
        if now < self._simulates_from:
            return None
        if not await self._would_revert(mint):
            self.is_careful = False
            return mint
        parts = collections.deque(_halves(batch))
        for _ in range(_PARTS_TRIED):
            if not parts:
                break
            part = parts.popleft()
            mint = self._mint(part)
            if not await self._would_revert(mint):
                return mint
            parts.extend(_halves(part))
        self._simulates_from = now + _SIMULATION_PAUSE_SECONDS
        return None

    def _mint(self, batch: Sequence[QueuedReward]) -> Intent:
        """The batch as an intent; a reward keeps the seq it has, others get the counter's next."""
        seqs = _numbered(batch, self._next_seq)
        mints = [
            ltz.Reward(reward.wallet, reward.ltz * LTZ, _reference(reward, seq))
            for reward, seq in zip(batch, seqs, strict=True)
        ]
        return Intent(
            nonce=self._next_nonce,
            to=self._desk.target.ltz,
            data=ltz.mint_call(mints),
            gas_limit=ltz.mint_gas_limit(len(batch)),
            ltz=sum(reward.ltz for reward in batch),
            rewards=[reward.id for reward in batch],
            seqs=seqs,
            next_seq=self._next_seq,
            fresh_seqs=sum(reward.seq is None for reward in batch),
        )

    async def _store(self, connection: Connection, mint: Intent, fees: Fees) -> OpenTransaction:
        signed = self._desk.signer.sign(
            Unsigned(
                chain_id=self._desk.target.chain_id,
                nonce=mint.nonce,
                max_priority_fee_per_gas=fees.max_priority_fee_per_gas,
                max_fee_per_gas=fees.max_fee_per_gas,
                gas_limit=mint.gas_limit,
                to=mint.to,
                value=0,
                data=mint.data,
            )
        )
        attempt = Attempt(signed.hash, signed.raw, fees)
        row_id, created_at = await transactions.store_signed(
            connection, self._desk.lane, mint, attempt
        )
        self._next_nonce += 1
        self._next_seq += mint.fresh_seqs
        return OpenTransaction(
            id=row_id,
            nonce=mint.nonce,
            gas_limit=mint.gas_limit,
            max_fee_per_gas=fees.max_fee_per_gas,
            tx=Transaction(State.SIGNED),
            hashes=(signed.hash,),
            raw=signed.raw,
            created_at=created_at,
            ltz=mint.ltz,
            rewards=tuple(mint.rewards),
        )

    async def _would_revert(self, mint: Intent) -> bool:
        try:
            await self._desk.node.view(mint.to, mint.data, self._desk.signer.address)
        except RpcError as error:
            log.error("mint.would_revert", reason=error.message, data=(error.data or b"").hex())
            return True
        self.is_careful = False
        return False


def _halves(batch: Sequence[QueuedReward]) -> list[Sequence[QueuedReward]]:
    middle = len(batch) // 2
    return [half for half in (batch[:middle], batch[middle:]) if half and len(batch) > 1]


def _numbered(batch: Sequence[QueuedReward], first: int) -> list[int]:
    """Each reward's seq: the one it has for ever, or the next from `first` on."""
    fresh = itertools.count(first)
    return [next(fresh) if reward.seq is None else reward.seq for reward in batch]


def _reference(reward: QueuedReward, seq: int) -> Reference:
    return reward_reference(reward.id, reward.kind, seq)
