"""Signs queued rewards as mints: intent, nonce and bytes are stored in one database transaction."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ltzd import telemetry
from ltzd.chain.contracts import ltz
from ltzd.chain.node.view import ChainView
from ltzd.errors import SignerUnavailable
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.mints.batch import encode_mint, seqs_of
from ltzd.operator.mints.limit import MintLimitTracker
from ltzd.operator.mints.simulation import MintSimulator
from ltzd.operator.policy import BALANCE, MINT_LIMIT, WOULD_REVERT, InProcessHooks, MintTarget
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionCall, TransactionSigner, Unsendable
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.sendable import Obstacle
from ltzd.rules.operator.transactions import Inclusion, State, Transaction
from ltzd.store.database import Connection, session
from ltzd.store.operator import rewards, transactions
from ltzd.store.operator.rewards import QueuedReward
from ltzd.store.operator.transactions import Intent, OpenTransaction

_SIZES = range(ltz.MAX_BATCH, 0, -1)
_SMALL_BATCH = 10
_BATCH_AFTER_CANCELLATIONS = (ltz.MAX_BATCH, _SMALL_BATCH, 1)
"""How many rewards may be minted together, by how often a mint of theirs was cancelled."""
_CEILING_SECONDS = 600.0
"""After a mint was refused for good, smaller batches are signed for this long."""


@dataclass(frozen=True, slots=True)
class MintCounters:
    """Where a term begins: the lane's next nonce, the next reference's seq, and the brand that was
    served last."""

    next_nonce: int
    next_seq: int
    last_brand: bytes = b""


class MintSigner:
    """Keeps the lane's counters in memory.

    Nothing else moves them during a term. If something does, the statement that stores an intent
    refuses it.
    """

    max_batch = ltz.MAX_BATCH
    """As of the last signing: fewer than LTZ allows if a block, or a node, takes no more."""
    sufficient_batch = 20
    """A batch of twice the size would save each reward 1,000 of 31,000 gas."""

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        signer: TransactionSigner,
        target: MintTarget,
        simulator: MintSimulator,
        counters: MintCounters,
        hooks: InProcessHooks,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._guard = guard
        self._signer = signer
        self._target = target
        self._mint_limit = MintLimitTracker(target, context.lane.wallet, context.clock)
        self._gas = simulator.gas
        self._simulator = simulator
        self._hooks = hooks
        self._next_nonce = counters.next_nonce
        self._next_seq = counters.next_seq
        self._last_brand = counters.last_brand
        self._ceiling, self._ceiling_until = ltz.MAX_BATCH, -math.inf

    async def sign_next(self, at_least: int = 1) -> int:
        fees = self._guard.fees()
        if fees is None:
            return 0
        async with self._context.signing_lock:
            self.max_batch = self._max_batch_now()
            if self.max_batch == 0:
                self._guard.pause(Obstacle.BLOCK_GAS.value)
                return 0
            gas = self._gas.limit(self.max_batch)
            if not self._guard.is_soon_mined(gas):
                return 0
            l1_fee_wei = self._signer.l1_costs.max_fee_wei(ltz.mint_call_bytes(self.max_batch), gas)
            if not self._guard.can_afford(gas * fees.max_fee_per_gas + l1_fee_wei):
                self._guard.pause(BALANCE)
                return 0
            return await self._sign(fees, at_least)

    def expected_items(self) -> int:
        return self._hooks.expected_rewards()

    def end_term(self) -> None:
        self._guard.resume()

    async def refresh(self, view: ChainView) -> None:
        await self._gas.refresh()
        await self._mint_limit.refresh(view)
        self._simulator.read_in(view)

    async def indexed_inclusions(self) -> Mapping[int, Inclusion]:
        """A mint needs no receipt, which would repeat all its logs."""
        async with session(self._context.pool) as connection:
            return await transactions.indexed_inclusions(connection, self._context.lane)

    def on_reverted(self) -> None:
        self._simulator.require_simulation()

    def on_abandoned(self, tx: OpenTransaction) -> None:
        """Sign smaller batches for a while: the size, the fee or the gas may have been too much.

        A node that serves at all takes a batch of ten, so batches never get smaller than that here.
        """
        size = next(n for n in _SIZES if n == 1 or self._gas.limit(n) <= tx.gas_limit)
        self._ceiling = max(_SMALL_BATCH, size // 2)
        self._ceiling_until = self._context.clock() + _CEILING_SECONDS

    def _max_batch_now(self) -> int:
        """How many rewards one mint may hold now; 0 if not even one fits into a block."""
        is_under_ceiling = self._context.clock() < self._ceiling_until
        most = self._ceiling if is_under_ceiling else ltz.MAX_BATCH
        gas = self._signer.max_gas_limit
        return next((n for n in _SIZES if n <= most and self._gas.limit(n) <= gas), 0)

    async def _sign(self, fees: Fees, at_least: int) -> int:
        async with session(self._context.pool) as connection:
            await self._mint_limit.update_queue(connection, self._context.lane)
            saving_for = self._mint_limit.saving_for
            waiting = await rewards.queued(connection, ltz.MAX_BATCH, self._last_brand, saving_for)
            if len(waiting) < at_least:
                if not waiting:
                    self._guard.resume()
                return 0
            selected = self._mint_limit.select(
                waiting, self._in_flight.minted_units(), self.max_batch
            )
            if not selected:
                self._note_served(waiting, saving_for)
                self._guard.pause(MINT_LIMIT)
                return 0
            alike = await self._with_the_first(connection, selected)
            batch = await self._simulator.mintable(connection, alike, self._next_seq)
            minted = {reward.id for reward in batch}
            self._mint_limit.give_back([reward for reward in selected if reward.id not in minted])
            if not batch:
                self._guard.pause(WOULD_REVERT)
                return 0
            mint = self._intent(batch)
            reserved_wei = self._in_flight.reserved_wei()
            obstacle = self._signer.obstacle(_call(mint), fees, reserved_wei)
            if obstacle is not None:
                self._mint_limit.give_back(batch)
                self._guard.pause(obstacle.value)
                return 0
            cost_wei = _call(mint).max_cost_wei(fees, self._signer.l1_costs)
            try:
                with self._in_flight.reserving(cost_wei):
                    tx = await self._store(connection, mint, fees, reserved_wei)
                    self._in_flight.add(tx)
            except (SignerUnavailable, Unsendable):
                self._mint_limit.give_back(batch)
                raise
            self._guard.resume()
        self._note_served(batch, saving_for)
        telemetry.BATCH_REWARDS.observe(len(batch))
        telemetry.TRANSACTIONS_CREATED.labels(self._context.lane.kind).inc()
        return len(batch)

    def _note_served(self, served: Sequence[QueuedReward], saving_for: UUID | None) -> None:
        """Let the next batch begin behind the brand that comes last in `served`.

        `served` is in the order of `rewards.queued`. Payments, and the reward that the limit saves
        for, are outside the brands' turns.
        """
        brands = [
            reward.brand_id
            for reward in served
            if not reward.is_payment and reward.id != saving_for
        ]
        if brands:
            self._last_brand = brands[-1]

    async def _with_the_first(
        self, connection: Connection, selected: Sequence[QueuedReward]
    ) -> list[QueuedReward]:
        """The first reward, and those that may be minted together with it.

        Rewards whose mint was cancelled are minted with rewards that were cancelled as often: ten
        at a time after one cancellation, alone after two. So a reward that nodes refuse does not
        hold up others for long.
        """
        minted_before = [reward.id for reward in selected if reward.seq is not None]
        cancelled: Mapping[UUID, int] = {}
        if minted_before:
            cancelled = await rewards.cancelled_mints(connection, minted_before)
        times = cancelled.get(selected[0].id, 0)
        limits = _BATCH_AFTER_CANCELLATIONS
        most = min(self.max_batch, limits[min(times, len(limits) - 1)])
        return [reward for reward in selected if cancelled.get(reward.id, 0) == times][:most]

    def _intent(self, batch: Sequence[QueuedReward]) -> Intent:
        """A reward keeps the seq that it has; other rewards get the counter's next."""
        seqs = seqs_of(batch, self._next_seq)
        return Intent(
            nonce=self._next_nonce,
            to=self._target.ltz,
            data=encode_mint(batch, seqs),
            gas_limit=self._gas.limit(len(batch)),
            ltz=sum(reward.ltz for reward in batch),
            rewards=[reward.id for reward in batch],
            seqs=seqs,
            next_seq=self._next_seq,
            fresh_seqs=sum(reward.seq is None for reward in batch),
        )

    async def _store(
        self, connection: Connection, mint: Intent, fees: Fees, reserved_wei: int
    ) -> OpenTransaction:
        attempt = await self._signer.sign(mint.nonce, _call(mint), fees, reserved_wei)
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


def _call(mint: Intent) -> TransactionCall:
    return TransactionCall(mint.to, mint.data, mint.gas_limit)
