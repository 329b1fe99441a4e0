"""Reads the receipts of a lane's transactions, and believes them as far as the nodes agree.

`rules/operator/evidence.py` decides; this module asks. With several nodes a receipt counts once a
second node has it, too. A reorg counts once a second node shows another block at the height.
"""

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum

from ltzd.chain.node.answers.typed import Header, Receipt
from ltzd.chain.node.node import Node
from ltzd.chain.node.second_opinions import OPINIONS, answered_in_time
from ltzd.chain.node.view import ChainView
from ltzd.concurrency.clock import Clock
from ltzd.errors import NodeUnavailable
from ltzd.rules.operator.evidence import (
    BlockTestimony,
    ReceiptOpinion,
    ReceiptWait,
    block_testimony,
    is_block_lost,
    is_receipt_believed,
)
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.values import Address, Hash32

RECEIPT_OF_FOREIGN_BLOCK = "receipt_of_foreign_block"
"""A node shows a receipt in a block that is not its canonical one at that height."""
RECEIPT_DENIED = "receipt_denied"
"""Two other nodes deny a receipt that a node shows."""


class Absence(Enum):
    MISSING = "missing"
    """The node has a receipt of no attempt."""
    DISPUTED = "disputed"
    """The node has a receipt that no other node confirms yet."""


class ReceiptReader:
    """`patience` is how long, in seconds, other nodes may be behind a receipt's block."""

    def __init__(self, wallet: Address, clock: Clock, patience: float) -> None:
        self._wallet = wallet
        self._clock = clock
        self._patience = patience
        self._unconfirmed: dict[Hash32, float] = {}
        """By transaction: since when no other node confirms its receipt."""
        self._previous: dict[Hash32, float] = {}
        self._foreign: set[tuple[Hash32, Hash32]] = set()
        """Receipts, by transaction and block, that are in a block which is not canonical."""
        self._foreign_before: set[tuple[Hash32, Hash32]] = set()

    @property
    def has_unconfirmed(self) -> bool:
        """Whether a receipt waits for the confirmation of another node."""
        return bool(self._unconfirmed)

    @property
    def unconfirmed_seconds(self) -> float:
        """The longest time that a receipt has waited for another node."""
        now = self._clock()
        return max((now - since for since in self._unconfirmed.values()), default=0.0)

    def begin_round(self) -> None:
        self._previous, self._unconfirmed = self._unconfirmed, {}
        self._foreign_before, self._foreign = self._foreign, set()

    async def read(
        self, view: ChainView, batch: Sequence[OpenTransaction], final_number: int
    ) -> list[Receipt | Absence]:
        """For each transaction the receipt of the attempt that has one. Raises NodeUnavailable."""
        hashes = [hash_ for tx in batch for hash_ in tx.hashes]
        shown = await view.node.known_receipts(hashes)
        canonical = await self._canonical(view, shown)
        nonces = {hash_: tx.nonce for tx in batch for hash_ in tx.hashes}
        believed = await self._believed(view, canonical, nonces, final_number)
        shown_hashes = {receipt.transaction_hash for receipt in shown}
        by_hash = {receipt.transaction_hash: receipt for receipt in believed}
        return [
            next((by_hash[hash_] for hash_ in tx.hashes if hash_ in by_hash), None)
            or (Absence.MISSING if shown_hashes.isdisjoint(tx.hashes) else Absence.DISPUTED)
            for tx in batch
        ]

    async def _canonical(self, view: ChainView, shown: Sequence[Receipt]) -> list[Receipt]:
        """The receipts whose block is the node's own at that height.

        A node is reported if a receipt fails twice: a reorg explains only the first time.
        """
        canonical = {view.head.number: view.head.hash}
        heights = sorted({receipt.block_number for receipt in shown} - canonical.keys())
        if heights:
            headers = await view.node.headers(heights)
            canonical |= {header.number: header.hash for header in headers if header is not None}
        foreign = {
            (receipt.transaction_hash, receipt.block_hash)
            for receipt in shown
            if canonical.get(receipt.block_number, receipt.block_hash) != receipt.block_hash
        }
        if foreign & self._foreign_before:
            view.node.report_contradiction(RECEIPT_OF_FOREIGN_BLOCK)
        self._foreign |= foreign
        return [
            receipt
            for receipt in shown
            if canonical.get(receipt.block_number) == receipt.block_hash
        ]

    async def _believed(
        self,
        view: ChainView,
        receipts: Sequence[Receipt],
        nonces: Mapping[Hash32, int],
        final_number: int,
    ) -> list[Receipt]:
        asked_at, believed = self._clock(), []
        opinions = await self._opinions(view.node, receipts, nonces)
        now = self._clock()
        for receipt, given in zip(receipts, opinions, strict=True):
            since = self._previous.get(receipt.transaction_hash, asked_at)
            is_final = receipt.block_number <= final_number
            wait = ReceiptWait(now - since, self._patience)
            if is_receipt_believed(given, wait, is_alone=view.node.is_alone, is_final=is_final):
                believed.append(receipt)
                continue
            self._unconfirmed[receipt.transaction_hash] = since
            if sum(opinion in _CONTRARY for opinion in given) >= OPINIONS:
                view.node.report_contradiction(RECEIPT_DENIED)
        return believed

    async def _opinions(
        self, node: Node, receipts: Sequence[Receipt], nonces: Mapping[Hash32, int]
    ) -> list[list[ReceiptOpinion]]:
        """The opinions of other nodes about each receipt; empty if no other node is usable."""
        opinions: list[list[ReceiptOpinion]] = [[] for _ in receipts]
        if not receipts:
            return opinions
        for other in node.others()[:OPINIONS]:
            open_ = [
                position
                for position, given in enumerate(opinions)
                if ReceiptOpinion.AGREES not in given
            ]
            if not open_:
                break
            undecided = [receipts[position] for position in open_]
            answers = await self._opinions_of(other, undecided, nonces)
            for position, answer in zip(open_, answers, strict=True):
                opinions[position].append(answer)
        return opinions

    async def _opinions_of(
        self, other: Node, receipts: Sequence[Receipt], nonces: Mapping[Hash32, int]
    ) -> list[ReceiptOpinion]:
        try:
            theirs, headers, used = await answered_in_time(
                other, self._testimony(other, receipts), self._patience
            )
        except NodeUnavailable:
            return [ReceiptOpinion.BEHIND] * len(receipts)
        opinions = []
        for receipt, own, header in zip(receipts, theirs, headers, strict=True):
            if own is not None:
                opinions.append(_comparison(own, receipt))
            elif header is None:
                opinions.append(ReceiptOpinion.BEHIND)
            elif used <= nonces[receipt.transaction_hash]:
                opinions.append(ReceiptOpinion.REFUTES)
            else:
                opinions.append(ReceiptOpinion.DIFFERS)
        return opinions

    async def _testimony(
        self, node: Node, receipts: Sequence[Receipt]
    ) -> tuple[list[Receipt | None], list[Header | None], int]:
        """The node's own receipts, its headers at their heights, and the wallet's used nonces.

        The used nonces are read only if a receipt is missing.
        """
        theirs = await node.receipts([receipt.transaction_hash for receipt in receipts])
        headers = await node.headers([receipt.block_number for receipt in receipts])
        used = await node.nonce(self._wallet) if None in theirs else 0
        return theirs, headers, used

    async def sort_missing(
        self, view: ChainView, missing: Sequence[OpenTransaction], undone_above: int | None
    ) -> tuple[list[OpenTransaction], list[OpenTransaction]]:
        """Sort mined transactions without receipts at the node into lost and held ones.

        A reorg dropped a lost transaction. The block of a held one is canonical for the node, which
        should therefore have the receipt. `undone_above` is the height down to which the indexer
        has just undone blocks: then a node need not show another block at the height. Raises
        NodeUnavailable.
        """
        if not missing:
            return [], []
        own = await _testimonies(view.node, missing)
        testified = list(zip(missing, own, strict=True))
        held = [tx for tx, testimony in testified if testimony is BlockTestimony.HOLDS]
        suspects = [
            (tx, testimony)
            for tx, testimony in testified
            if testimony is BlockTestimony.GONE
            or (testimony is BlockTestimony.BEHIND and _is_undone(tx, undone_above))
        ]
        others = view.node.others()[:OPINIONS] if suspects else []
        opinions = await asyncio.gather(
            *(_testimonies_or_behind(other, [tx for tx, _ in suspects]) for other in others)
        )
        lost = [
            tx
            for position, (tx, testimony) in enumerate(suspects)
            if _is_lost(
                testimony,
                [testimonies[position] for testimonies in opinions],
                is_alone=view.node.is_alone,
            )
        ]
        return lost, held


_CONTRARY = frozenset({ReceiptOpinion.DIFFERS, ReceiptOpinion.REFUTES})


def _is_undone(tx: OpenTransaction, undone_above: int | None) -> bool:
    return undone_above is not None and _block_number(tx) > undone_above


def _is_lost(own: BlockTestimony, others: Sequence[BlockTestimony], *, is_alone: bool) -> bool:
    """Whether a suspect is lost; if the node is behind, the indexer has undone the block."""
    if own is BlockTestimony.BEHIND:
        return BlockTestimony.HOLDS not in others
    return is_block_lost(own, others, is_alone=is_alone)


def _comparison(own: Receipt, theirs: Receipt) -> ReceiptOpinion:
    """A node's opinion of another node's receipt: its own receipt, costs included, is compared.

    A gas price or L1 fee that only one of the two nodes reports is no difference: old clients
    report none.
    """
    if (own.block_hash, own.succeeded) != (theirs.block_hash, theirs.succeeded):
        return ReceiptOpinion.REFUTES
    prices = {own.effective_gas_price, theirs.effective_gas_price} - {None}
    l1_fees = {own.l1_fee_wei, theirs.l1_fee_wei} - {0}
    is_equal = own.gas_used == theirs.gas_used and len(prices) < 2 and len(l1_fees) < 2
    return ReceiptOpinion.AGREES if is_equal else ReceiptOpinion.DIFFERS


async def _testimonies(node: Node, mined: Sequence[OpenTransaction]) -> list[BlockTestimony]:
    """Raises NodeUnavailable."""
    headers = await node.headers([_block_number(tx) for tx in mined])
    receipts = await node.receipts([hash_ for tx in mined for hash_ in tx.hashes])
    shown = {receipt.transaction_hash for receipt in receipts if receipt is not None}
    return [
        block_testimony(
            _block_hash(tx),
            header.hash if header is not None else None,
            has_receipt=not shown.isdisjoint(tx.hashes),
        )
        for tx, header in zip(mined, headers, strict=True)
    ]


async def _testimonies_or_behind(
    node: Node, mined: Sequence[OpenTransaction]
) -> list[BlockTestimony]:
    try:
        return await _testimonies(node, mined)
    except NodeUnavailable:
        return [BlockTestimony.BEHIND] * len(mined)


def _block_number(tx: OpenTransaction) -> int:
    assert tx.tx.inclusion is not None, "it is mined"
    return tx.tx.inclusion.block_number


def _block_hash(tx: OpenTransaction) -> Hash32:
    assert tx.tx.inclusion is not None, "it is mined"
    return tx.tx.inclusion.block_hash
