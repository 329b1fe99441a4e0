"""Signs queued rewards as mints: intent, nonce and bytes are stored in one database transaction."""

import asyncio
import math
from collections.abc import Mapping, Sequence

import msgspec
import structlog

from ltzd import telemetry, tracing
from ltzd.chain.contracts import ltz
from ltzd.chain.node.view import ChainView
from ltzd.errors import DatabaseUnavailable, LaneLost, Unavailable
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork
from ltzd.operator.mints.batch import encode_mint, fresh_count, number
from ltzd.operator.mints.claims import RewardClaims
from ltzd.operator.mints.limit import MintLimitTracker
from ltzd.operator.mints.patience import PatientBrands
from ltzd.operator.mints.simulation import MintBatch, MintSimulator, PlannedMint
from ltzd.operator.policy import FUNDS, WOULD_REVERT, InProcessHooks, MintTarget
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionCall, TransactionSigner
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.mint_gas import gas_percent_after, ran_out_of_gas
from ltzd.rules.operator.references import LaneReferences
from ltzd.rules.operator.sendable import Obstacle
from ltzd.rules.operator.transactions import Inclusion
from ltzd.store.database import session
from ltzd.store.operator import lanes, transactions
from ltzd.store.operator.rewards import QueuedReward
from ltzd.store.operator.transactions import Intent, OpenTransaction, RewardsTaken

log = structlog.get_logger()

_SMALL_BATCH = 10
_CEILING_SECONDS = 600.0
"""After a mint was refused for good, smaller batches are signed for this long."""
_RACE_PAUSES = (0.001, 0.003, 0.01, 0.03)
"""Seconds, at most, before the lane looks again after other lanes have claimed what it saw."""


class MintCounters(msgspec.Struct, frozen=True):
    """Where a term begins: the lane's next nonce, its references, and the brand that was served
    last. `ran_out_of_gas`: one of the latest mints did."""

    next_nonce: int
    references: LaneReferences
    last_brand: bytes = b""
    ran_out_of_gas: bool = False


class MintSigner(LaneWork):
    """Keeps the lane's counters in memory.

    Nothing else changes the counters during a term. If something does, the statement that stores an
    intent refuses it. Other lanes take rewards from the same queue: this one claims rewards before
    it signs them, and gives back the claimed rewards that it does not sign.
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
        self._patience = PatientBrands(context)
        self._claims = RewardClaims(
            context,
            in_flight,
            guard,
            self._mint_limit,
            simulator,
            self._patience,
            counters.last_brand,
        )
        self._gas = simulator.gas
        self._simulator = simulator
        self._hooks = hooks
        self._next_nonce = counters.next_nonce
        self._references = counters.references
        self._working_lanes = 1
        # Lanes that lost a race against each other look again at different times.
        self._race_factor = 0.5 + context.lane.wallet[-1] / 512
        self._raised_at_nonce = counters.next_nonce
        if counters.ran_out_of_gas:
            self._gas.raise_limits()
        self._ceiling, self._ceiling_until = ltz.MAX_BATCH, -math.inf
        self._has_emptied_queue = False

    @property
    def waits_for_block(self) -> bool:
        return self._patience.is_holding

    @property
    def has_emptied_queue(self) -> bool:
        return self._has_emptied_queue

    async def sign_next(self, at_least: int = 1) -> int:
        self._has_emptied_queue = False
        fees = self._guard.fees_or_pause()
        if fees is None:
            return 0
        async with self._context.signing_lock:
            self.max_batch = self._max_batch_now()
            if self.max_batch == 0:
                self._guard.pause(Obstacle.BLOCK_GAS.value)
                return 0
            gas = self._gas.limit(self.max_batch)
            if not self._guard.fits_next_blocks(gas, self._working_lanes):
                return 0
            l1_fee_wei = self._signer.l1_costs.max_fee_wei(ltz.mint_call_bytes(self.max_batch), gas)
            if not self._guard.can_afford(gas * fees.max_fee_per_gas + l1_fee_wei):
                self._guard.pause(FUNDS)
                return 0
            return await self._sign(fees, at_least)

    def expected_items(self) -> int:
        return self._hooks.expected_rewards()

    async def refresh(self, view: ChainView) -> None:
        await self._gas.refresh()
        async with session(self._context.pool) as connection:
            lane = self._context.lane
            working = await lanes.count_working(connection, lane.chain_id, lane.kind)
        await self._mint_limit.refresh(view)
        self._simulator.use_view(view)
        self._patience.refresh(view)
        self._working_lanes = max(1, working)

    async def indexed_inclusions(self) -> Mapping[int, Inclusion]:
        """A mint needs no receipt, which would repeat all its logs."""
        async with session(self._context.pool) as connection:
            return await transactions.indexed_inclusions(connection, self._context.lane)

    def on_reverted(self, tx: OpenTransaction, inclusion: Inclusion) -> None:
        """Simulate the next mints; if this one ran out of gas, give all later ones more.

        Mints that were signed before the limits were raised raise them no further.
        """
        self._simulator.require_simulation()
        cost = inclusion.gas_cost
        if cost is None or not ran_out_of_gas(cost.gas_used, tx.gas_limit):
            return
        if tx.nonce >= self._raised_at_nonce:
            self._gas.raise_limits()
            self._raised_at_nonce = self._next_nonce

    def on_abandoned(self, tx: OpenTransaction) -> None:
        """Sign smaller batches for a while: the size, the fee or the gas may have been too much.

        A node that serves at all takes a batch of ten, so batches never get smaller than that here.
        """
        sizes = range(ltz.MAX_BATCH, 0, -1)
        size = next(n for n in sizes if n == 1 or self._gas.limit(n) <= tx.gas_limit)
        self._ceiling = max(_SMALL_BATCH, size // 2)
        self._ceiling_until = self._context.clock() + _CEILING_SECONDS

    def _max_batch_now(self) -> int:
        """How many rewards one mint may hold now; 0 if not even one fits into a block."""
        is_under_ceiling = self._context.clock() < self._ceiling_until
        return self._gas.most(self._ceiling if is_under_ceiling else ltz.MAX_BATCH)

    async def _sign(self, fees: Fees, at_least: int) -> int:
        for pause in _RACE_PAUSES:
            claimed = await self._claims.take(at_least, self.max_batch)
            if claimed is None:
                return 0
            signed = await self._sign_claimed(claimed, fees) if claimed else None
            if signed is not None:
                return signed
            await asyncio.sleep(pause * self._race_factor)
        return 0

    async def _sign_claimed(self, claimed: Sequence[QueuedReward], fees: Fees) -> int | None:
        """Sign a mint of claimed rewards, and give back the others; return how many are signed.

        Returns None if the caller should claim others at once: another lane has taken some of these
        while this process was frozen, or LTZ refuses all of them and would mint others.
        """
        try:
            signed = await self._mint(claimed, fees)
        except (LaneLost, DatabaseUnavailable):
            raise  # The term ends, and its claims with it.
        except Unavailable as error:
            await self._claims.give_back(claimed)
            if isinstance(error, RewardsTaken):
                log.warning("mint.rewards_taken", rewards=len(claimed))
                return None
            raise
        self._claims.note_served(signed)
        self._has_emptied_queue = self._claims.have_emptied_queue(len(signed))
        taken = {reward.id for reward in signed}
        await self._claims.give_back([reward for reward in claimed if reward.id not in taken])
        return None if not signed and self._simulator.holds(claimed[0]) else len(signed)

    async def _mint(self, claimed: Sequence[QueuedReward], fees: Fees) -> Sequence[QueuedReward]:
        """Sign and store the claimed rewards that LTZ would mint now; return these."""
        begun_at = tracing.now()
        await self._take_word(fresh_count(claimed))
        percent = gas_percent_after(claimed[0].out_of_gas)
        planned = await self._simulator.plan(MintBatch(claimed, self._references, percent))
        if not planned.batch:
            self._guard.pause(WOULD_REVERT)
            return []
        if self._guard.fees_or_pause() is None:  # The lane was closed meanwhile.
            return []
        mint = self._intent(planned)
        reserved_wei = self._in_flight.reserved_wei()
        obstacle = self._signer.obstacle(_call(mint), fees, reserved_wei)
        if obstacle is not None:
            self._guard.pause(obstacle.value)
            return []
        cost_wei = _call(mint).max_cost_wei(fees, self._signer.l1_costs)
        with self._in_flight.reserving(cost_wei):
            tx = await self._store(mint, fees, reserved_wei)
            self._in_flight.add(tx)
        log.info(
            "mint.signed",
            transaction=tx.id,
            nonce=tx.nonce,
            hash=tx.hashes[0],
            rewards=list(map(str, tx.rewards)),
        )
        tracing.step(
            "mint signed",
            tx.rewards,
            begun_at,
            {"ltzd.transaction": tx.id, "ltzd.nonce": tx.nonce, "ltzd.batch_size": len(tx.rewards)},
        )
        self._guard.resume()
        telemetry.BATCH_REWARDS.observe(len(planned.batch))
        telemetry.TRANSACTIONS_CREATED.labels(self._context.lane.kind).inc()
        return planned.batch

    async def _take_word(self, count: int) -> None:
        """Take another word of references if the lane has fewer than `count`."""
        if self._references.count >= count:
            return
        async with session(self._context.pool) as connection:
            self._references = await lanes.take_word(
                connection, self._context.lane, self._target.ltz, self._references
            )

    def _intent(self, planned: PlannedMint) -> Intent:
        """A reward keeps the seq that it has; other rewards get the lane's next."""
        batch = planned.batch
        seqs, left = number(batch, self._references)
        return Intent(
            nonce=self._next_nonce,
            to=self._target.ltz,
            data=encode_mint(batch, seqs),
            gas_limit=planned.gas_limit,
            ltz=sum(reward.ltz for reward in batch),
            rewards=[reward.id for reward in batch],
            seqs=seqs,
            references=self._references,
            references_after=left,
        )

    async def _store(self, mint: Intent, fees: Fees, reserved_wei: int) -> OpenTransaction:
        """Sign and store; a signature that is not stored is forgotten, and its nonce is free."""
        attempt = await self._signer.sign(mint.nonce, _call(mint), fees, reserved_wei)
        async with session(self._context.pool) as connection:
            row_id = await transactions.store_signed(connection, self._context.lane, mint, attempt)
        self._next_nonce += 1
        self._references = mint.references_after
        return transactions.newly_signed(
            *(row_id, mint.nonce, mint.gas_limit, attempt),
            ltz=mint.ltz,
            rewards=mint.rewards,
        )


def _call(mint: Intent) -> TransactionCall:
    return TransactionCall(mint.to, mint.data, mint.gas_limit)
