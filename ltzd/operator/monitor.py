"""Watches the lane's transactions until finality: receipts, reorgs, lost bytes, taken nonces.

Every attempt's hash is asked for. A missing receipt counts only after several looks in a row, since
a node may lag; a mined transaction's block is compared with the indexed chain, and when it is not
there the receipt is asked for again.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import structlog

from ltzd import telemetry
from ltzd.chain.node.node import Header, Receipt
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
_JUDGED_AT_ONCE = 256
_REPEATED_AT_ONCE = 64
_MISSES = 3
_MISSES_SECONDS = 1.5


class ReceiptMonitor:
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
        self._sent_at: dict[int, float] = {}
        self._missing: dict[int, tuple[int, float]] = {}

    async def run(self) -> None:
        while True:
            await self._blocks.wait(self._context.policy.poll_seconds)
            try:
                await self.look()
                self._guard.hear_node(answers=True)
            except NodeUnavailable as error:
                self._funds.forget()
                self._guard.hear_node(answers=False)
                log.warning("watch.node_unavailable", reason=error.message)

    async def look(self) -> None:
        """One round. Raises NodeUnavailable: whatever was not decided waits for the next."""
        head, _ = await self._context.node.head_and_final()
        await self._seen_of_flight()
        await self._receipts_of_flight()
        await self.judge_mined()
        flight = self._in_flight.oldest_first()[:_REPEATED_AT_ONCE]
        late = self._late(flight)
        is_urgent = bool(late) or self._in_flight.held is not None or self._guard.is_paused
        await self._look_around(head, is_urgent=is_urgent)
        if await self._canceller.look() | await self._fee_bumper.look(flight, head):
            self._publisher.notify()
        await self._repeat(late)

    async def _look_around(self, head: Header, *, is_urgent: bool) -> None:
        """Fees, balance and the work's own limits, once a block; the first two also when stuck.

        What pauses the lane may end without a block: a chain that mines on demand makes none then.
        """
        is_new = self._head is None or head.hash != self._head.hash
        if is_new:
            await self._work.look()
        if is_new or is_urgent or self._funds.gas_price is None:
            await self._funds.look(head)
            self._publisher.notify()
        self._head = head

    async def _seen_of_flight(self) -> None:
        """What the indexer has seen needs no receipt."""
        if self._in_flight.count() == 0:
            return
        inclusions = await self._work.seen()
        flight = self._in_flight.oldest_first()
        await self._mined([(tx, inclusions[tx.nonce]) for tx in flight if tx.nonce in inclusions])

    async def _receipts_of_flight(self) -> None:
        """Ask in windows from the oldest nonce on; a window without any receipt ends the round."""
        flight = self._in_flight.oldest_first()
        self._measure(flight)
        start, width = 0, _WINDOW
        while start < len(flight):
            window = flight[start : start + width]
            receipts = await self._newest_receipts(window)
            mined = [
                (tx, _inclusion(receipt, tx))
                for tx, receipt in zip(window, receipts, strict=True)
                if receipt
            ]
            if not mined:
                return
            await self._mined(mined)
            start, width = start + width, min(2 * width, _WIDEST_WINDOW)

    async def _newest_receipts(self, those: Sequence[OpenTransaction]) -> list[Receipt | None]:
        """For each transaction the receipt of whichever attempt has one."""
        hashes = [one for tx in those for one in tx.hashes]
        found = {
            receipt.transaction_hash: receipt
            for receipt in await self._context.node.receipts(hashes)
            if receipt is not None
        }
        return [next((found[one] for one in tx.hashes if one in found), None) for tx in those]

    async def _mined(self, those: Sequence[tuple[OpenTransaction, Inclusion]]) -> None:
        if not those:
            return
        # First, since what leaves the book must have left bucket and purse as we know them.
        await self._work.look()
        await self._funds.refresh_balance()
        await self._in_flight.hear([(tx, ReceiptSeen(inclusion)) for tx, inclusion in those])
        for tx, inclusion in those:
            self._sent_at.pop(tx.nonce, None)
            self._missing.pop(tx.nonce, None)
            if inclusion.is_cancellation:
                log.warning(f"{self._kind}.cancelled", transaction=tx.id, nonce=tx.nonce)
            elif not inclusion.succeeded:
                log.error(f"{self._kind}.reverted", transaction=tx.id, nonce=tx.nonce)
                self._work.reverted()
        self._publisher.notify()

    async def _check_taken(self, oldest: OpenTransaction) -> None:
        """Whether the oldest nonce was used by somebody else: final, and no receipt is ours."""
        if await self._final_nonce() <= oldest.nonce:
            return
        if not self._missed_often(oldest.nonce):
            return
        log.critical("nonce.taken", nonce=oldest.nonce)
        await self._in_flight.hear([(oldest, NonceTaken())])

    async def _final_nonce(self) -> int:
        """Transactions of the wallet up to finality: the node's, or ours where it tells none."""
        node, lane = self._context.node, self._context.lane
        try:
            return await node.nonce(lane.wallet, "finalized")
        except NodeUnavailable:
            async with session(self._context.pool) as connection:
                cursor = await chains.cursor(connection, lane.chain_id)
            return await node.nonce(lane.wallet, hex(cursor.final_number))

    async def judge_mined(self) -> None:
        """Raises Stopped, NodeUnavailable."""
        async with session(self._context.pool) as connection:
            mined = await transactions.mined_to_settle(
                connection, self._context.lane, _JUDGED_AT_ONCE
            )
        unindexed = [each for each in mined if not each.is_indexed]
        receipts = await self._newest_receipts([each.transaction for each in unindexed])
        heard = [(each.transaction, _finalized(each)) for each in mined if each.is_indexed]
        for each, receipt in zip(unindexed, receipts, strict=True):
            seen = self._compare(each, receipt)
            if seen is not None:
                heard.append((each.transaction, seen))
        await self._in_flight.hear(heard)
        if any(isinstance(seen, ReceiptLost) for _, seen in heard):
            self._publisher.notify()

    def _compare(self, mined: MinedTransaction, receipt: Receipt | None) -> Observation | None:
        """A mined transaction whose block is not indexed: orphaned, or the indexer is behind."""
        tx = mined.transaction
        if receipt is None:
            if not self._missed_often(tx.nonce):
                return None
            log.warning(f"{self._kind}.orphaned", transaction=tx.id, nonce=tx.nonce)
            return ReceiptLost()
        self._missing.pop(tx.nonce, None)
        inclusion = _inclusion(receipt, tx)
        if inclusion != tx.tx.inclusion:
            return ReceiptSeen(inclusion)
        return _finalized(mined) if mined.is_past_finality else None

    def _missed_often(self, nonce: int) -> bool:
        """Count a missing receipt; True after enough looks over enough time."""
        now = self._context.clock()
        misses, since = self._missing.get(nonce, (0, now))
        self._missing[nonce] = (misses + 1, since)
        if misses + 1 < _MISSES or now - since < _MISSES_SECONDS:
            return False
        del self._missing[nonce]
        return True

    def _late(self, flight: Sequence[OpenTransaction]) -> list[OpenTransaction]:
        """What has stayed without receipt, each time that it is late again."""
        now = self._context.clock()
        late = [
            tx
            for tx in flight
            if now - self._sent_at.setdefault(tx.nonce, now) >= self._context.policy.repeat_seconds
        ]
        self._sent_at.update({tx.nonce: now for tx in late})
        return late

    def _measure(self, flight: Sequence[OpenTransaction]) -> None:
        age = (datetime.now(UTC) - flight[0].created_at).total_seconds() if flight else 0
        undecided = sum(tx.tx.state is State.SIGNED for tx in flight)
        telemetry.OLDEST_UNCONFIRMED_SECONDS.labels(self._kind).set(max(0.0, age))
        telemetry.UNDECIDED.labels(self._kind).set(undecided)
        telemetry.NONCE_GAP.labels(self._kind).set(len(flight))

    async def _repeat(self, late: Sequence[OpenTransaction]) -> None:
        """Publish again: a node may have dropped it, or refused it while fees were higher."""
        if not late:
            return
        self._in_flight.publish_again(late)
        self._publisher.notify()
        if late[0].nonce == self._in_flight.oldest_first()[0].nonce:
            await self._check_taken(late[0])


def _finalized(mined: MinedTransaction) -> Observation:
    """Raises Stopped when a final mint has rewards without a mint on chain."""
    if mined.unminted:
        raise Stopped(
            f"Transaction {mined.transaction.id} is final, yet {mined.unminted} of its rewards "
            "have no mint on chain: their references were used by others"
        )
    return Finalized()


def _inclusion(receipt: Receipt, tx: OpenTransaction) -> Inclusion:
    gas_cost = GasCost(receipt.transaction_hash, receipt.gas_used, receipt.effective_gas_price)
    is_cancellation = receipt.transaction_hash in tx.cancellations
    return Inclusion(
        receipt.block_number,
        receipt.block_hash,
        receipt.succeeded and not is_cancellation,
        gas_cost,
        is_cancellation,
    )
