"""Settles the lane's mined transactions: final ones, and those that a reorg has dropped."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import structlog

from ltzd.chain.node.answers.typed import Receipt
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.nonce_uses import RECEIPT_MISSING
from ltzd.operator.policy import Stopped
from ltzd.operator.receipts import Absence, ReceiptReader
from ltzd.rules.operator.l1_costs import L1Costs
from ltzd.rules.operator.sendable import TRANSACTION_GAS
from ltzd.rules.operator.transactions import (
    Finalized,
    GasCost,
    Inclusion,
    Observation,
    ReceiptLost,
    ReceiptSeen,
)
from ltzd.store.database import Connection, session
from ltzd.store.indexer.chains import Cursor
from ltzd.store.operator import rewards, settlement
from ltzd.store.operator.settlement import MinedTransaction
from ltzd.store.operator.transactions import OpenTransaction

log = structlog.get_logger()

_CHECKED_AT_ONCE = 256
_MOST_BATCHES = 4
"""The most batches settled in a round: more transactions may become final than a batch holds."""
_REPUBLISHED_AT_ONCE = 64


class Settlement:
    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        receipts: ReceiptReader,
    ) -> None:
        self._context = context
        self._kind = context.lane.kind
        self._in_flight = in_flight
        self._funds = funds
        self._receipts = receipts
        self._behind_since: dict[int, float] = {}
        self._held_since: dict[int, float] = {}
        self._last_cursor = 0
        self._had_mined = True

    @property
    def is_done(self) -> bool:
        """Whether nothing is in flight, and the last check found no mined transaction.

        Until a transaction is final, a reorg may undo its block.
        """
        return self._in_flight.count() == 0 and not self._had_mined

    async def check(self, view: ChainView, cursor: Cursor) -> bool:
        """Settle transactions by view and indexed chain; return whether bytes are due again.

        Raises Stopped, NodeUnavailable.
        """
        are_due = False
        for _ in range(_MOST_BATCHES):
            mined, has_lost = await self._settle_batch(view, cursor)
            are_due |= has_lost
            if len(mined) < _CHECKED_AT_ONCE or not any(each.is_indexed for each in mined):
                break
        return are_due

    async def _settle_batch(
        self, view: ChainView, cursor: Cursor
    ) -> tuple[Sequence[MinedTransaction], bool]:
        """Return the batch, and whether a reorg has made bytes of it due again."""
        async with session(self._context.pool) as connection:
            mined = await settlement.mined_to_settle(
                connection, self._context.lane, _CHECKED_AT_ONCE
            )
            doubtful = [each.transaction.id for each in mined if each.unminted]
            skipped = await rewards.count_skipped(connection, doubtful) if doubtful else {}
            self._had_mined = await self._has_mined(connection, mined)
        unproven = [each for each in mined if _needs_receipt(each)]
        receipts = await self._receipts.read(
            view, [each.transaction for each in unproven], cursor.final_number
        )
        observations = [
            (each.transaction, _finalized(each, skipped))
            for each in mined
            if not _needs_receipt(each)
        ]
        missing = []
        for each, receipt in zip(unproven, receipts, strict=True):
            if isinstance(receipt, Receipt):
                observation = await self._compare(each, receipt, skipped)
                if observation is not None:
                    observations.append((each.transaction, observation))
            elif each.is_indexed:
                observations.append((each.transaction, _finalized(each, skipped)))
            elif receipt is Absence.MISSING:
                missing.append(each.transaction)
        has_undone = cursor.number < self._last_cursor
        undone_above = cursor.number if has_undone else None
        lost, held = await self._receipts.sort_missing(view, missing, undone_above)
        for tx in lost:
            log.warning(f"{self._kind}.orphaned", transaction=tx.id, nonce=tx.nonce)
            observations.append((tx, ReceiptLost()))
        await self._in_flight.apply(observations)
        self._last_cursor = cursor.number
        self._note_held(view, held)
        decided = {tx.id for tx in (*lost, *held)}
        await self._republish([tx for tx in missing if tx.id not in decided])
        return mined, bool(lost)

    async def _has_mined(self, connection: Connection, due: Sequence[MinedTransaction]) -> bool:
        """Whether mined transactions may be left; asks the database only if the lane seems idle."""
        if due or self._in_flight.count():
            return True
        return await settlement.has_mined(connection, self._context.lane)

    async def _compare(
        self, mined: MinedTransaction, receipt: Receipt, skipped: Mapping[int, int]
    ) -> Observation | None:
        """Decide by its receipt about a transaction of which the index proves no outcome."""
        tx = mined.transaction
        inclusion = inclusion_of(receipt, tx, await self._funds.read_l1_costs())
        if mined.is_indexed and not inclusion.succeeded:
            return _finalized(mined, skipped)
        if inclusion != tx.tx.inclusion:
            return ReceiptSeen(inclusion)
        return _finalized(mined, skipped) if mined.is_past_finality else None

    def _note_held(self, view: ChainView, held: Sequence[OpenTransaction]) -> None:
        """Report a node that goes on showing a transaction's block without its receipt."""
        now = self._context.clock()
        self._held_since = {tx.id: self._held_since.get(tx.id, now) for tx in held}
        longest = max((now - since for since in self._held_since.values()), default=0.0)
        if held and longest >= self._context.policy.pauses.missing_receipt:
            self._held_since = {}
            view.node.report_contradiction(RECEIPT_MISSING)

    async def _republish(self, undecided: Sequence[OpenTransaction]) -> None:
        """Publish the bytes of mined transactions whose block no node shows.

        Harmless if the block comes back; a chain that mines on demand would stand still without.
        """
        now, seconds = self._context.clock(), self._context.policy.repeat_seconds
        since = {tx.id: self._behind_since.get(tx.id, now) for tx in undecided}
        late = [tx for tx in undecided if now - since[tx.id] >= seconds]
        self._behind_since = since | {tx.id: now for tx in late}
        if late:
            with suppress(NodeUnavailable):
                await self._context.node.publish_all([tx.raw for tx in late[:_REPUBLISHED_AT_ONCE]])


def _needs_receipt(mined: MinedTransaction) -> bool:
    """Whether the index lacks the block, or may hold the call of a transaction that failed.

    The only node may have shown a false failure for a while, and no log contradicts a failure.
    """
    inclusion = mined.transaction.tx.inclusion
    return not mined.is_indexed or (inclusion is not None and not inclusion.succeeded)


def _finalized(mined: MinedTransaction, skipped: Mapping[int, int]) -> Observation:
    """Raises Stopped if a final mint has rewards without a mint on chain, and without a cause.

    `skipped` counts the rewards whose references other final mints have used, by transaction.
    """
    if mined.unminted > skipped.get(mined.transaction.id, 0):
        raise Stopped(
            f"Transaction {mined.transaction.id} is final, yet {mined.unminted} of its rewards "
            "have no mint on chain: their references were used by others"
        )
    return Finalized(has_skipped=mined.unminted > 0)


def inclusion_of(receipt: Receipt, tx: OpenTransaction, l1_costs: L1Costs) -> Inclusion:
    """The inclusion that a receipt of one of the attempts shows."""
    is_cancellation = receipt.transaction_hash in tx.cancellations
    return Inclusion(
        receipt.block_number,
        receipt.block_hash,
        receipt.succeeded and not is_cancellation,
        _gas_cost(receipt, tx, l1_costs),
        is_cancellation,
    )


def _gas_cost(receipt: Receipt, tx: OpenTransaction, l1_costs: L1Costs) -> GasCost:
    """The cost by the receipt, but at most what was reserved for the transaction.

    So a lying node cannot use up a gas budget. The newest attempt pays the highest price, which
    counts if the receipt has none.
    """
    gas_used = min(receipt.gas_used, max(tx.gas_limit, TRANSACTION_GAS))
    price = tx.fees.max_fee_per_gas
    if receipt.effective_gas_price is not None:
        price = min(price, receipt.effective_gas_price)
    operator_fee = l1_costs.operator_fee_wei(gas_used) if receipt.has_operator_fee else 0
    l1_fee = min(receipt.l1_fee_wei + operator_fee, l1_costs.max_fee_wei(len(tx.raw), gas_used))
    return GasCost(receipt.transaction_hash, gas_used, price, l1_fee)
