"""Follows the lane's transactions to finality: receipts, reorgs, lost bytes, used nonces.

The hashes of all attempts are asked for. A missing receipt counts only after several rounds in a
row, since a node may lag. The block of a mined transaction is compared with the indexed chain; if
the indexer does not have it, the receipt is asked for again.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import structlog

from ltzd import telemetry
from ltzd.chain.node.node import Header, Node, Receipt
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.operator.canceller import Canceller
from ltzd.operator.fee_bumper import FeeBumper
from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork
from ltzd.operator.policy import Stopped
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionSigner
from ltzd.rules.operator.l1_costs import L1Costs
from ltzd.rules.operator.transactions import (
    Finalized,
    GasCost,
    Inclusion,
    NonceTaken,
    Observation,
    ReceiptLost,
    ReceiptSeen,
    State,
)
from ltzd.store.database import session
from ltzd.store.indexer import chains
from ltzd.store.operator import transactions
from ltzd.store.operator.transactions import MinedTransaction, OpenTransaction
from ltzd.store.wakeups import Wakeup

log = structlog.get_logger()

_WINDOW = 8
"""Receipts asked for at first: later nonces cannot be mined before earlier ones."""
_WIDEST_WINDOW = 128
_CHECKED_AT_ONCE = 256
_REPEATED_AT_ONCE = 64
_MISSES = 3


class ReceiptMonitor:
    """Runs a round for each `blocks` wake-up; notifies `publisher` after a change for it to act on.

    Each round also lets the fee bumper and the canceller deal with stuck transactions.
    """

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        signer: TransactionSigner,
        work: LaneWork,
        guard: SendGuard,
        blocks: Wakeup,
        publisher: Wakeup,
    ) -> None:
        self._context = context
        self._kind = context.lane.kind
        self._in_flight = in_flight
        self._funds = funds
        self._work = work
        self._guard = guard
        self._fee_bumper = FeeBumper(context, in_flight, funds, signer)
        self._canceller = Canceller(context, in_flight, funds, signer, work)
        self._blocks = blocks
        self._publisher = publisher
        self._head: Header | None = None
        self._published_at: dict[int, float] = {}
        self._missing: dict[int, tuple[int, float]] = {}

    async def run(self) -> None:
        while True:
            await self._blocks.wait(self._context.policy.poll_seconds)
            try:
                await self.poll()
                self._guard.node_answered()
            except NodeUnavailable as error:
                self._funds.forget_fees()
                self._guard.node_failed()
                log.warning("monitor.node_unavailable", reason=error.message)

    async def poll(self) -> None:
        """Run one round. Raises NodeUnavailable; the next round decides what this one did not."""
        view = await ChainView.newest(self._context.node)
        view = await self._apply_indexed(view)
        view = await self._apply_receipts(view)
        await self.check_mined()
        oldest = self._in_flight.oldest_first()[:_REPEATED_AT_ONCE]
        late = self._late(oldest)
        is_held = self._in_flight.held_reason is not None
        is_urgent = bool(late) or is_held or self._guard.is_paused
        await self._refresh(view, is_urgent=is_urgent)
        has_cancelled = await self._canceller.cancel_rejected()
        if await self._fee_bumper.replace_stuck(oldest, view.head) or has_cancelled:
            self._publisher.notify()
        await self._publish_again(late)

    async def _refresh(self, view: ChainView, *, is_urgent: bool) -> None:
        """Refresh fees, balance and the work's own limits once a block; fees also when urgent.

        The cause of a pause may end without a block: a chain that mines on demand makes none then.
        """
        is_new = self._head is None or view.head.hash != self._head.hash
        if is_new or is_urgent or self._funds.gas_price is None:
            await self._funds.read(view)
            # The work sets its values last, so that nothing is signed between the two.
            await self._work.refresh(view)
            self._funds.apply()
            self._in_flight.l1_costs = self._funds.l1_costs
            self._publisher.notify()
        self._head = view.head

    async def _apply_indexed(self, view: ChainView) -> ChainView:
        """Transactions whose block the indexer has read need no receipt.

        A block that the node does not have yet must wait: its state lacks the transaction.
        """
        if self._in_flight.count() == 0:
            return view
        inclusions = await self._work.indexed_inclusions()
        if any(each.block_number > view.head.number for each in inclusions.values()):
            view = await ChainView.newest(view.node)
        return await self._apply_inclusions(
            view,
            [
                (tx, inclusions[tx.nonce])
                for tx in self._in_flight.oldest_first()
                if tx.nonce in inclusions and inclusions[tx.nonce].block_number <= view.head.number
            ],
        )

    async def _apply_receipts(self, view: ChainView) -> ChainView:
        """Ask for receipts in windows from the oldest nonce, up to a window without any.

        Returns the view that later reads of the round use.
        """
        oldest = self._in_flight.oldest_first()
        self._set_gauges(oldest)
        start, width = 0, _WINDOW
        while start < len(oldest):
            window = oldest[start : start + width]
            receipts = await self._receipts_of(window, view.node)
            mined = [
                (tx, _inclusion(receipt, tx, self._funds.l1_costs))
                for tx, receipt in zip(window, receipts, strict=True)
                if receipt
            ]
            if not mined:
                break
            view = await self._apply_inclusions(view, mined)
            start, width = start + width, min(2 * width, _WIDEST_WINDOW)
        return view

    async def _receipts_of(
        self, batch: Sequence[OpenTransaction], node: Node
    ) -> list[Receipt | None]:
        """For each transaction the receipt of whichever attempt has one."""
        hashes = [hash_ for tx in batch for hash_ in tx.hashes]
        receipts = {
            receipt.transaction_hash: receipt
            for receipt in await node.receipts(hashes)
            if receipt is not None
        }
        return [
            next((receipts[hash_] for hash_ in tx.hashes if hash_ in receipts), None)
            for tx in batch
        ]

    async def _apply_inclusions(
        self, view: ChainView, mined: Sequence[tuple[OpenTransaction, Inclusion]]
    ) -> ChainView:
        if not mined:
            return view
        # First, so that the mint limit and the balance no longer hold what leaves those in flight.
        view = await view.reaching(max(inclusion.block_number for _, inclusion in mined))
        balance = await self._funds.read_balance(view)
        await self._work.refresh(view)
        self._funds.set_balance(balance)
        await self._in_flight.apply([(tx, ReceiptSeen(inclusion)) for tx, inclusion in mined])
        for tx, inclusion in mined:
            self._published_at.pop(tx.nonce, None)
            self._missing.pop(tx.nonce, None)
            if inclusion.is_cancellation:
                log.warning(f"{self._kind}.cancelled", transaction=tx.id, nonce=tx.nonce)
            elif not inclusion.succeeded:
                log.error(f"{self._kind}.reverted", transaction=tx.id, nonce=tx.nonce)
                self._work.on_reverted()
        self._publisher.notify()
        return view

    async def _check_nonce_taken(self, oldest: OpenTransaction) -> None:
        """Displace the oldest transaction if its nonce is final without a receipt of an attempt."""
        if await self._final_nonce() <= oldest.nonce:
            return
        if not self._is_missing(oldest.nonce):
            return
        log.critical("nonce.taken", nonce=oldest.nonce)
        await self._in_flight.apply([(oldest, NonceTaken())])

    async def _final_nonce(self) -> int:
        """The wallet's next nonce at finality: the node's, else the indexer's final block."""
        node, lane = self._context.node, self._context.lane
        try:
            return await node.nonce(lane.wallet, "finalized")
        except NodeUnavailable:
            async with session(self._context.pool) as connection:
                cursor = await chains.cursor(connection, lane.chain_id)
            return await node.nonce(lane.wallet, hex(cursor.final_number))

    async def check_mined(self) -> None:
        """Confirm mined transactions past finality, and find those that a reorg has removed.

        Raises Stopped, NodeUnavailable.
        """
        async with session(self._context.pool) as connection:
            mined = await transactions.mined_to_settle(
                connection, self._context.lane, _CHECKED_AT_ONCE
            )
        unindexed = [each for each in mined if not each.is_indexed]
        receipts = await self._receipts_of(
            [each.transaction for each in unindexed], self._context.node
        )
        observations = [(each.transaction, _finalized(each)) for each in mined if each.is_indexed]
        for each, receipt in zip(unindexed, receipts, strict=True):
            observation = self._compare(each, receipt)
            if observation is not None:
                observations.append((each.transaction, observation))
        await self._in_flight.apply(observations)
        if any(isinstance(observation, ReceiptLost) for _, observation in observations):
            self._publisher.notify()

    def _compare(self, mined: MinedTransaction, receipt: Receipt | None) -> Observation | None:
        """A mined transaction whose block is not indexed: orphaned, or the indexer is behind."""
        tx = mined.transaction
        if receipt is None:
            if not self._is_missing(tx.nonce):
                return None
            log.warning(f"{self._kind}.orphaned", transaction=tx.id, nonce=tx.nonce)
            return ReceiptLost()
        self._missing.pop(tx.nonce, None)
        inclusion = _inclusion(receipt, tx, self._funds.l1_costs)
        if inclusion != tx.tx.inclusion:
            return ReceiptSeen(inclusion)
        return _finalized(mined) if mined.is_past_finality else None

    def _is_missing(self, nonce: int) -> bool:
        """Count a missing receipt; return True after enough rounds over enough time."""
        now = self._context.clock()
        misses, since = self._missing.get(nonce, (0, now))
        self._missing[nonce] = (misses + 1, since)
        enough_seconds = self._context.policy.pauses.missing_receipt
        if misses + 1 < _MISSES or now - since < enough_seconds:
            return False
        del self._missing[nonce]
        return True

    def _late(self, oldest: Sequence[OpenTransaction]) -> list[OpenTransaction]:
        """The transactions without receipt for `repeat_seconds`, each once in that time."""
        now = self._context.clock()
        late = [
            tx
            for tx in oldest
            if now - self._published_at.setdefault(tx.nonce, now)
            >= self._context.policy.repeat_seconds
        ]
        self._published_at.update({tx.nonce: now for tx in late})
        return late

    def _set_gauges(self, oldest: Sequence[OpenTransaction]) -> None:
        age = (datetime.now(UTC) - oldest[0].created_at).total_seconds() if oldest else 0
        undecided = sum(tx.tx.state is State.SIGNED for tx in oldest)
        telemetry.OLDEST_UNCONFIRMED_SECONDS.labels(self._kind).set(max(0.0, age))
        telemetry.UNDECIDED.labels(self._kind).set(undecided)
        telemetry.NONCE_GAP.labels(self._kind).set(len(oldest))

    async def _publish_again(self, late: Sequence[OpenTransaction]) -> None:
        """A node may have dropped the bytes, or refused them while fees were higher."""
        if not late:
            return
        self._in_flight.publish_again(late)
        self._publisher.notify()
        if late[0].nonce == self._in_flight.oldest_first()[0].nonce:
            await self._check_nonce_taken(late[0])


def _finalized(mined: MinedTransaction) -> Observation:
    """Raises Stopped if a final mint has rewards without a mint on chain."""
    if mined.unminted:
        raise Stopped(
            f"Transaction {mined.transaction.id} is final, yet {mined.unminted} of its rewards "
            "have no mint on chain: their references were used by others"
        )
    return Finalized()


def _inclusion(receipt: Receipt, tx: OpenTransaction, l1_costs: L1Costs) -> Inclusion:
    is_cancellation = receipt.transaction_hash in tx.cancellations
    return Inclusion(
        receipt.block_number,
        receipt.block_hash,
        receipt.succeeded and not is_cancellation,
        _gas_cost(receipt, tx, l1_costs),
        is_cancellation,
    )


def _gas_cost(receipt: Receipt, tx: OpenTransaction, l1_costs: L1Costs) -> GasCost:
    """A price that the receipt does not tell is at most the newest attempt's, which pays most."""
    price = receipt.effective_gas_price
    operator_fee = l1_costs.operator_fee_wei(receipt.gas_used) if receipt.has_operator_fee else 0
    return GasCost(
        receipt.transaction_hash,
        receipt.gas_used,
        tx.fees.max_fee_per_gas if price is None else price,
        receipt.l1_fee_wei + operator_fee,
    )
