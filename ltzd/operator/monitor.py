"""Follows the lane's transactions to finality: receipts, reorgs, lost bytes, used nonces.

All reads of a round come from one node. The hashes of all attempts are asked for. A missing receipt
alone proves nothing (`rules/operator/evidence.py`). The block of a mined transaction is compared
with the indexed chain; if the indexer does not have it, the receipt is asked for again.
"""

import math
from collections.abc import Sequence

import structlog

from ltzd.chain.node.answers.typed import Header, Receipt
from ltzd.chain.node.view import ChainView
from ltzd.chain.node.views import MALFORMED_ANSWER
from ltzd.concurrency.outages import Outage
from ltzd.errors import NodeUnavailable
from ltzd.operator.fleet import lane_gauges
from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork
from ltzd.operator.nonce_uses import NonceUses
from ltzd.operator.receipts import Absence, ReceiptReader
from ltzd.operator.resubmission.resubmission import Resubmission
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.settlement import Settlement, inclusion_of
from ltzd.rules.operator.transactions import (
    Inclusion,
    NonceTaken,
    ReceiptSeen,
    State,
)
from ltzd.store.database import session
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import Cursor
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.store.wakeups import Wakeup
from ltzd.values import hex_of

log = structlog.get_logger()

_WINDOW = 8
"""Receipts asked for at first: later nonces cannot be mined before earlier ones."""
_WIDEST_WINDOW = 256
_REPEATED_AT_ONCE = 64
_UNCONFIRMED_POLL_SECONDS = 0.2
"""The pause between two rounds while a receipt waits for another node."""
_IDLE_POLLS = 3
"""A lane without work polls this many times less often. Its fees may then be a few seconds old when
work comes, but they leave room for a base fee twice as high."""
ROUNDS_FAIL = "rounds_fail"
"""A node answers, yet for seconds no round of a lane has succeeded at it."""
_SERIES_ENDS = 2.0
"""Failures of a node that are this many `standstill` times apart belong to different series."""
NONCE_BELOW_MINED = "nonce_below_mined"
"""A node shows a transaction as mined and its sender's nonce as if it were not."""


class ReceiptMonitor:
    """Runs a round for each `blocks` wake-up; notifies `publisher` after a change for it to act on.

    Each round also lets `resubmission` deal with stuck transactions.
    """

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        resubmission: Resubmission,
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
        self._resubmission = resubmission
        self._blocks = blocks
        self._publisher = publisher
        self._head: Header | None = None
        self._polled_at = -math.inf
        self._published_at: dict[int, float] = {}
        self._receipts = ReceiptReader(
            context.lane.wallet, context.clock, context.policy.pauses.second_opinion
        )
        self._settlement = Settlement(context, in_flight, funds, self._receipts)
        self._nonce_uses = NonceUses(context)
        self._outage = Outage("monitor.node_unavailable", "monitor.node_back", context.clock)
        self._node = context.node
        """The node that this round asks."""
        self._failing: dict[str, tuple[float, float]] = {}
        """By node: the times of the first and the last failed round since its last success."""
        self._last_shown: tuple[int, Inclusion] | None = None
        """The highest nonce that this round has seen mined, and its block."""

    async def run(self) -> None:
        while True:
            await self._blocks.wait(self._pause())
            if self._is_resting():
                continue
            try:
                self._polled_at = self._context.clock()
                await self.poll()
                self._guard.node_answered()
                self._outage.over(kind=self._kind)
                self._failing.pop(self._node.name, None)
            except NodeUnavailable as error:
                self._report_failing_node(error)
                self._funds.forget_fees()
                self._guard.node_failed(error)
                self._outage.failed(error.message, kind=self._kind)

    def _report_failing_node(self, error: NodeUnavailable) -> None:
        """Report a node that answers, but at which no round succeeds, so that others are asked.

        Malformed data of a single round may be a proxy's error page. The pool itself handles nodes
        that are silent or behind, and errors that mean that no node is left blame no node.
        """
        if error.kind not in ("malformed", "other") or self._node.is_alone:
            return
        name, now = self._node.name, self._context.clock()
        standstill = self._context.policy.pauses.standstill
        first, last = self._failing.get(name, (now, now))
        if now - last >= _SERIES_ENDS * standstill:
            first = now  # Other nodes were asked meanwhile, so a new series begins.
        self._failing[name] = first, now
        if first == now:
            return
        if error.kind == "malformed":
            self._node.report_contradiction(MALFORMED_ANSWER)
        elif now - first >= standstill:
            self._node.report_contradiction(ROUNDS_FAIL)
        else:
            return
        del self._failing[name]

    def _pause(self) -> float:
        seconds = self._context.policy.poll_seconds
        if self._receipts.has_unconfirmed:
            return min(seconds, _UNCONFIRMED_POLL_SECONDS)
        return _IDLE_POLLS * seconds if self._is_idle else seconds

    def _is_resting(self) -> bool:
        rest = _IDLE_POLLS * self._context.policy.poll_seconds
        return self._is_idle and self._context.clock() - self._polled_at < rest

    @property
    def _is_idle(self) -> bool:
        """Whether no transaction, item or person waits for what a new block may tell."""
        return (
            self._settlement.is_done
            and self._funds.gas_price is not None
            and not self._guard.is_paused
            and not self._guard.has_requests
            and not self._work.waits_for_block
        )

    async def poll(self) -> None:
        """Run one round. Raises NodeUnavailable; the next round decides what this one did not."""
        self._node = self._context.node.pinned()  # A failure of the next line is this node's.
        view = await ChainView.newest(self._context.node)
        self._node = view.node
        cursor = await self._cursor()
        self._receipts.begin_round()
        self._last_shown = None
        view = await self._apply_indexed(view)
        view = await self._apply_receipts(view, cursor)
        self._guard.receipts_disputed(self._receipts.unconfirmed_seconds)
        if await self._settlement.check(view, cursor):
            self._publisher.notify()
        await self._check_nonce(view, cursor)
        oldest = self._in_flight.oldest_first()[:_REPEATED_AT_ONCE]
        late = self._late(oldest)
        is_held = self._in_flight.held_reason is not None
        is_urgent = bool(late) or is_held or self._guard.is_paused
        await self._refresh(view, is_urgent=is_urgent, is_late=bool(late))
        # Something else that signs with the same key is not outbid.
        if not self._guard.is_wallet_shared and await self._resubmission.resubmit(
            oldest, view.head
        ):
            self._publisher.notify()
        self._publish_again(late)

    async def _refresh(self, view: ChainView, *, is_urgent: bool, is_late: bool) -> None:
        """Refresh fees, balance and the work's own limits once a block; fees also when urgent.

        A lane may be unpaused without a new block, on a chain that mines on demand.
        `is_late`: a published transaction has waited long for its receipt.
        """
        is_new = self._head is None or view.head.hash != self._head.hash
        if is_new or is_urgent or self._funds.gas_price is None:
            await self._funds.read(view, is_late=is_late)
            # The work sets its values last, so that nothing is signed between the two.
            await self._work.refresh(view)
            self._funds.apply()
            self._in_flight.set_l1_costs(self._funds.l1_costs)
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

    async def _apply_receipts(self, view: ChainView, cursor: Cursor) -> ChainView:
        """Ask for receipts in windows from the oldest nonce, up to a window without any.

        Returns the view that later reads of the round use.
        """
        oldest = self._in_flight.oldest_first()
        self._set_gauges(oldest)
        start, width = 0, _WINDOW
        while start < len(oldest):
            window = oldest[start : start + width]
            receipts = await self._receipts.read(view, window, cursor.final_number)
            shown = [
                (tx, receipt)
                for tx, receipt in zip(window, receipts, strict=True)
                if isinstance(receipt, Receipt)
            ]
            if not shown:
                break
            l1_costs = await self._funds.read_l1_costs()
            mined = [(tx, inclusion_of(receipt, tx, l1_costs)) for tx, receipt in shown]
            view = await self._apply_inclusions(view, mined)
            start, width = start + width, min(2 * width, _WIDEST_WINDOW)
        return view

    async def _apply_inclusions(
        self, view: ChainView, mined: Sequence[tuple[OpenTransaction, Inclusion]]
    ) -> ChainView:
        if not mined:
            return view
        self._last_shown = mined[-1][0].nonce, mined[-1][1]
        view = await view.reaching(max(inclusion.block_number for _, inclusion in mined))
        self._funds.note_mined(max(tx.nonce for tx, _ in mined) + 1)
        # Before `apply`: once these are not in flight, balance and mint limit must include them.
        balance = await self._funds.read_balance(view)
        await self._work.refresh(view)
        self._funds.set_balance(balance)
        for tx, inclusion in mined:
            if not inclusion.succeeded and not inclusion.is_cancellation:
                # Before the commit, during which the publisher may sign the next work.
                self._work.on_reverted(tx, inclusion)
        await self._in_flight.apply([(tx, ReceiptSeen(inclusion)) for tx, inclusion in mined])
        for tx, inclusion in mined:
            self._published_at.pop(tx.nonce, None)
            if inclusion.is_cancellation:
                log.warning(f"{self._kind}.cancelled", transaction=tx.id, nonce=tx.nonce)
            elif not inclusion.succeeded:
                log.error(f"{self._kind}.reverted", transaction=tx.id, nonce=tx.nonce)
        self._publisher.notify()
        return view

    async def _check_nonce(self, view: ChainView, cursor: Cursor) -> None:
        """Compare the wallet's nonce with the transactions that are mined, or in flight."""
        oldest = next(iter(self._in_flight.oldest_first()), None)
        if oldest is None and self._last_shown is None:
            return
        used = await self._funds.read_nonce(view)
        if self._last_shown is not None and used <= self._last_shown[0]:
            await self._report_nonce(view, self._last_shown[1])
        elif oldest is not None:
            await self._displace_if_taken(view, cursor, oldest, used)

    async def _report_nonce(self, view: ChainView, shown: Inclusion) -> None:
        """Report the node, unless a reorg between its two answers explains them."""
        header = await view.node.block(shown.block_number)
        if header is not None and header.hash == shown.block_hash:
            view.node.report_contradiction(NONCE_BELOW_MINED)

    async def _displace_if_taken(
        self, view: ChainView, cursor: Cursor, oldest: OpenTransaction, used: int
    ) -> None:
        """Displace the oldest transaction once a foreign one has proven to have its nonce."""
        if used > oldest.nonce:
            (receipt,) = await self._receipts.read(view, [oldest], cursor.final_number)
            if receipt is not Absence.MISSING:
                return
        use = await self._nonce_uses.foreign_use(view, oldest, used, cursor.final_number)
        if self._nonce_uses.suspect is not None:
            await self._guard.found_foreign_use(self._nonce_uses.suspect, oldest.nonce)
        if use is None:
            return
        log.critical("nonce.taken", nonce=oldest.nonce, by=hex_of(use.hash))
        await self._in_flight.apply([(oldest, NonceTaken())])
        self._publisher.notify()

    async def check_mined(self) -> None:
        """Confirm mined transactions past finality, and find those that a reorg has removed.

        Raises Stopped, NodeUnavailable.
        """
        view = await ChainView.newest(self._context.node)
        await self._settlement.check(view, await self._cursor())

    async def _cursor(self) -> Cursor:
        async with session(self._context.pool) as connection:
            return await chains.cursor(connection, self._context.lane.chain_id)

    def _late(self, oldest: Sequence[OpenTransaction]) -> list[OpenTransaction]:
        """The transactions to publish again: each once per `repeat_seconds` without a receipt."""
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
        age = oldest[0].age_seconds if oldest else 0.0
        undecided = sum(tx.tx.state is State.SIGNED for tx in oldest)
        lane_gauges.OLDEST_UNCONFIRMED_SECONDS.set(self._context.lane, age)
        lane_gauges.UNDECIDED.set(self._context.lane, undecided)
        lane_gauges.NONCE_GAP.set(self._context.lane, len(oldest))

    def _publish_again(self, late: Sequence[OpenTransaction]) -> None:
        """A node may have dropped the bytes, or refused them while fees were higher."""
        if not late:
            return
        self._in_flight.publish_again(late)
        self._publisher.notify()
