"""Turns queued rewards into a signed mint: intent, nonce and bytes in one database transaction."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ltzd import telemetry
from ltzd.chain.contracts import ltz
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.mints.batch import call_of, numbered
from ltzd.operator.mints.limit import MintLimitTracker
from ltzd.operator.mints.simulation import MintSimulator
from ltzd.operator.policy import BALANCE, MINT_LIMIT, WOULD_REVERT, InProcessHooks, MintTarget
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import Call, TransactionSigner
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.sendable import Obstacle
from ltzd.rules.operator.transactions import Inclusion, State, Transaction
from ltzd.store.database import Connection, session
from ltzd.store.operator import rewards, transactions
from ltzd.store.operator.rewards import QueuedReward
from ltzd.store.operator.transactions import Intent, OpenTransaction

_SIZES = range(ltz.MAX_BATCH, 0, -1)
_SMALL_COMPANY = 10
_COMPANY = (ltz.MAX_BATCH, _SMALL_COMPANY, 1)
"""How many rewards may be minted together, by how often a mint of theirs was cancelled."""
_CEILING_SECONDS = 600.0
"""After a mint was refused for good smaller ones are signed for this long."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Where a term begins: the lane's next nonce, the next reference's seq, and the brand whose
    turn was the last one."""

    next_nonce: int
    next_seq: int
    last_brand: bytes = b""


class MintSigner:
    """Holds the lane's counters in memory.

    While the term lasts nobody else moves them, and the statement that stores an intent refuses if
    somebody did.
    """

    largest = ltz.MAX_BATCH
    """At the last signing: fewer than the token takes where a block, or a node, holds no more."""
    enough = 20
    """Twice as many would save each of them 1,000 of 31,000 gas."""

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        signer: TransactionSigner,
        target: MintTarget,
        simulator: MintSimulator,
        counters: Counters,
        process: InProcessHooks,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._guard = guard
        self._signer = signer
        self._target = target
        self._mint_limit = MintLimitTracker(
            context.node, target, context.lane.wallet, context.clock
        )
        self._simulator = simulator
        self._process = process
        self._next_nonce = counters.next_nonce
        self._next_seq = counters.next_seq
        self._last_brand = counters.last_brand
        self._ceiling, self._ceiling_until = ltz.MAX_BATCH, -math.inf

    async def sign_next(self, at_least: int = 1) -> int:
        fees = self._guard.fees()
        if fees is None:
            return 0
        async with self._context.signing_lock:
            self.largest = largest = self._most()
            if largest == 0:
                return self._guard.pause(Obstacle.BLOCK_GAS.value)
            gas = ltz.mint_gas_limit(largest)
            if not self._guard.is_soon_mined(gas):
                return 0
            if not self._guard.can_afford(gas * fees.max_fee_per_gas):
                return self._guard.pause(BALANCE)
            return await self._sign(fees, at_least)

    def on_the_way(self) -> int:
        return self._process.on_the_way()

    def leave(self) -> None:
        self._guard.pause(None)

    async def look(self) -> None:
        await self._mint_limit.look()

    async def seen(self) -> Mapping[int, Inclusion]:
        """A mint needs no receipt, which would repeat all its logs."""
        async with session(self._context.pool) as connection:
            return await transactions.indexed_inclusions(connection, self._context.lane)

    def reverted(self) -> None:
        self._simulator.must_simulate = True

    def abandoned(self, tx: OpenTransaction) -> None:
        """A smaller batch may be taken: its size, its fee or its gas may have been too much.

        A batch of ten is too much for no node that can serve at all, so it never gets smaller for
        all because of one.
        """
        size = next(n for n in _SIZES if n == 1 or ltz.mint_gas_limit(n) <= tx.gas_limit)
        self._ceiling = max(_SMALL_COMPANY, size // 2)
        self._ceiling_until = self._context.clock() + _CEILING_SECONDS

    def _most(self) -> int:
        """How many rewards one mint may hold now; 0 where not even one fits into a block."""
        is_under_ceiling = self._context.clock() < self._ceiling_until
        most = self._ceiling if is_under_ceiling else ltz.MAX_BATCH
        gas = self._signer.most_gas
        return next((n for n in _SIZES if n <= most and ltz.mint_gas_limit(n) <= gas), 0)

    async def _sign(self, fees: Fees, at_least: int) -> int:
        async with session(self._context.pool) as connection:
            await self._mint_limit.sort_out(connection, self._context.lane)
            saver = self._mint_limit.saver
            waiting = await rewards.queued(connection, ltz.MAX_BATCH, self._last_brand, saver)
            if len(waiting) < at_least:
                return self._guard.pause(None) if not waiting else 0
            fitting = self._mint_limit.fit(waiting, self._in_flight.minting(), self.largest)
            if not fitting:
                self._pass_the_turn(waiting, saver)
                return self._guard.pause(MINT_LIMIT)
            company = await self._company(connection, fitting)
            batch = await self._simulator.passing(connection, company, self._next_seq)
            minted = {reward.id for reward in batch}
            self._mint_limit.give_back([one for one in fitting if one.id not in minted])
            if not batch:
                return self._guard.pause(WOULD_REVERT)
            mint = self._mint(batch)
            obstacle = self._signer.obstacle(_call(mint), fees, self._in_flight.reserved_wei())
            if obstacle is not None:
                self._mint_limit.give_back(batch)
                return self._guard.pause(obstacle.value)
            self._guard.pause(None)
            tx = await self._store(connection, mint, fees)
        self._pass_the_turn(batch, saver)
        self._in_flight.add(tx)
        telemetry.BATCH_REWARDS.observe(len(batch))
        telemetry.TRANSACTIONS_CREATED.labels(self._context.lane.kind).inc()
        return len(batch)

    def _pass_the_turn(self, served: Sequence[QueuedReward], saver: UUID | None) -> None:
        """The next turn begins behind the brand that came last; no payment and no saver is a turn.

        `served` is in the order of `rewards.queued`.
        """
        brands = [one.brand_id for one in served if not one.is_payment and one.id != saver]
        if brands:
            self._last_brand = brands[-1]

    async def _company(
        self, connection: Connection, fitting: Sequence[QueuedReward]
    ) -> list[QueuedReward]:
        """What may be minted with the first reward.

        Rewards whose mint was cancelled are minted with their like, ten at a time and then each
        alone, so that a reward that nodes refuse holds up no other for long.
        """
        minted_before = [reward.id for reward in fitting if reward.seq is not None]
        cancelled: Mapping[UUID, int] = {}
        if minted_before:
            cancelled = await rewards.cancelled_mints(connection, minted_before)
        times = cancelled.get(fitting[0].id, 0)
        most = min(self.largest, _COMPANY[min(times, len(_COMPANY) - 1)])
        return [reward for reward in fitting if cancelled.get(reward.id, 0) == times][:most]

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
        attempt = self._signer.sign(mint.nonce, _call(mint), fees, self._in_flight.reserved_wei())
        row_id, created_at = await transactions.store_signed(
            connection, self._context.lane, mint, attempt
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


def _call(mint: Intent) -> Call:
    return Call(mint.to, mint.data, mint.gas_limit)
