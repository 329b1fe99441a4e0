"""Proves that a foreign transaction used a nonce of the lane, by finding that transaction.

A used nonce without a receipt of any attempt proves nothing: the node may lack the receipts. So the
foreign transaction is searched in the blocks between a head at which the nonce was unused and the
head at which it is used. The search needs no state of old blocks, which pruned nodes lack, but is
shorter with it. After a restart the search begins anew, without the first of the two heads. The
verdict waits until the transaction's block is final on the indexed chain, and asks a second node.
"""

import msgspec
import structlog

from ltzd.chain.node.node import Node
from ltzd.chain.node.second_opinions import OPINIONS
from ltzd.chain.node.view import ChainView
from ltzd.chain.node.wallet_transactions import uses_of_nonce
from ltzd.errors import NodeUnavailable
from ltzd.operator.lane_context import LaneContext
from ltzd.rules.operator.evidence import NonceUse, UseOpinion, is_nonce_taken
from ltzd.store.operator.transactions import OpenTransaction

log = structlog.get_logger()

FORGED_TRANSACTION = "forged_transaction"
"""A node shows a transaction of the wallet that the wallet has not signed."""
USE_HIDDEN = "use_hidden"
"""A node shows a nonce of the wallet as used, and no block in which it was used."""
RECEIPT_MISSING = "receipt_missing"
"""A node shows a transaction in a block, or the block, without the receipt."""
_BLOCKS_AT_ONCE = 8
"""Blocks with all their transactions in one request."""
_BLOCKS_A_ROUND = 16
_BLOCKS_AT_MOST = 20_000
"""The search is given up after this many blocks, and a person must look into it."""
_PROBES_A_ROUND = 24


class _Search(msgspec.Struct):
    """The nonce is unused at height `low`, if that is known, and used at height `high`."""

    nonce: int
    low: int | None
    high: int
    step: int = _BLOCKS_AT_ONCE
    has_state: bool = True
    blocks: int = 0


class NonceUses:
    def __init__(self, context: LaneContext) -> None:
        self._context = context
        self._unused_at: int | None = None
        self._used_at = 0
        self._search: _Search | None = None
        self._use: NonceUse | None = None
        self._suspect: NonceUse | None = None
        self._own_since: float | None = None
        self._hidden_since: float | None = None

    @property
    def suspect(self) -> NonceUse | None:
        """A foreign transaction that uses the oldest nonce, final or not.

        Its signature proves that the wallet's key signed it, whatever its node says.
        """
        return self._suspect

    async def foreign_use(
        self, view: ChainView, oldest: OpenTransaction, used: int, final_number: int
    ) -> NonceUse | None:
        """The foreign transaction that used the oldest nonce, once it is proven and final.

        `used` is the wallet's nonce as of the view. Call it once a round, for a transaction without
        receipts. Raises NodeUnavailable.
        """
        self._suspect = None
        if used <= oldest.nonce:
            # A node that has not reached the head of the search is no witness.
            if self._search is None or view.head.number >= self._used_at:
                self._start_again()
                self._unused_at, self._hidden_since = view.head.number, None
            return None
        if self._search is None or self._search.nonce != oldest.nonce:
            self._search = _Search(oldest.nonce, self._unused_at, view.head.number)
            self._use, self._own_since, self._used_at = None, None, view.head.number
            return None  # The receipt may be a moment behind the state.
        if self._use is None:
            self._use = await self._find(view.node, self._search)
        if self._use is None or await self._is_gone(view, self._use):
            return None
        self._hidden_since = None
        if self._use.hash in oldest.hashes:
            self._note_own(view.node, oldest)
            return None
        self._suspect = self._use
        is_proven = await self._prove(view.node, oldest, self._use, final_number)
        return self._use if is_proven else None

    async def _prove(
        self, node: Node, oldest: OpenTransaction, use: NonceUse, final_number: int
    ) -> bool:
        """Ask other nodes about the use; return whether it is proven. Searches again if denied."""
        if use.block_number > final_number:
            return False
        opinions = [
            await self._opinion(other, oldest, use)
            for other in node.others(use.block_number)[:OPINIONS]
        ]
        is_taken = is_nonce_taken(use, final_number, opinions, is_alone=node.is_alone)
        if UseOpinion.DENIES in opinions and not is_taken:
            log.error("nonce.use_disputed", nonce=oldest.nonce, block=use.block_number)
            self._start_again()
        return is_taken

    async def _is_gone(self, view: ChainView, use: NonceUse) -> bool:
        """Whether a reorg has removed the use's block; then the search starts again."""
        (header,) = await view.node.headers([use.block_number])
        if header is None:
            return True  # This node is behind; the next round may ask another one.
        if header.hash != use.block_hash:
            self._start_again()
            return True
        return False

    def _start_again(self) -> None:
        self._search = self._use = self._own_since = self._unused_at = None

    def _note_own(self, node: Node, oldest: OpenTransaction) -> None:
        """The node shows an attempt of ours in a block, yet no receipt: that is no foreign use."""
        now = self._context.clock()
        if self._own_since is None:
            self._own_since = now
            log.warning("nonce.receipt_missing", nonce=oldest.nonce)
        if now - self._own_since >= self._context.policy.pauses.missing_receipt:
            self._own_since = now
            node.report_contradiction(RECEIPT_MISSING)

    def _note_hidden(self, node: Node, nonce: int) -> None:
        """No block uses the nonce: a reorg moved its use, an earlier node lied, or this node lies.

        The next search depends on no earlier node.
        """
        now = self._context.clock()
        if self._hidden_since is None:
            self._hidden_since = now
            log.error("nonce.use_not_found", nonce=nonce)
        if now - self._hidden_since >= self._context.policy.pauses.missing_receipt:
            self._hidden_since = now
            node.report_contradiction(USE_HIDDEN)

    # The search

    async def _find(self, node: Node, search: _Search) -> NonceUse | None:
        """Search on for one round; None if the transaction is not found yet."""
        if search.blocks >= _BLOCKS_AT_MOST:
            return None
        if search.has_state:
            await self._narrow(node, search)
        for _ in range(_BLOCKS_A_ROUND // _BLOCKS_AT_ONCE):
            first = max(0, search.high - _BLOCKS_AT_ONCE + 1)
            if search.low is not None:
                first = max(first, search.low + 1)
            if first > search.high:
                self._note_hidden(node, search.nonce)
                self._start_again()
                return None
            lane = self._context.lane
            numbers = range(first, search.high + 1)
            uses = await uses_of_nonce(node, lane.wallet, lane.chain_id, search.nonce, numbers)
            if any(use.is_forged for use in uses):
                node.report_contradiction(FORGED_TRANSACTION)
                raise NodeUnavailable("The node shows a transaction that the wallet never signed")
            if uses:
                return uses[-1]
            search.blocks += len(numbers)
            search.high = first - 1
        if search.blocks >= _BLOCKS_AT_MOST:
            log.critical("nonce.use_not_found", nonce=search.nonce, blocks=search.blocks)
        return None

    async def _narrow(self, node: Node, search: _Search) -> None:
        """Halve the range by the wallet's nonce at blocks between, as far as the node has these."""
        for _ in range(_PROBES_A_ROUND):
            low = -1 if search.low is None else search.low
            if search.high - low <= _BLOCKS_AT_ONCE:
                return
            if search.low is None:
                at = max(0, search.high - search.step)
                search.step *= 2
            else:
                at = (low + search.high) // 2
            try:
                used = await node.nonce(self._context.lane.wallet, at)
            except NodeUnavailable:
                search.has_state = False
                return
            if used > search.nonce:
                search.high = at
            else:
                search.low = at

    async def _opinion(self, other: Node, oldest: OpenTransaction, use: NonceUse) -> UseOpinion:
        lane, number = self._context.lane, use.block_number
        try:
            receipts = await other.receipts(oldest.hashes)
            uses = await uses_of_nonce(other, lane.wallet, lane.chain_id, oldest.nonce, [number])
        except NodeUnavailable:
            return UseOpinion.OPEN
        is_ours = any(receipt is not None for receipt in receipts)
        return UseOpinion.AGREES if use in uses and not is_ours else UseOpinion.DENIES
