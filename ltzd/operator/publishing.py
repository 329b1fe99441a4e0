"""Hands the lane's signed bytes to the node in the order of nonces, then signs the next batch.

While a publication is under way rewards gather; whatever waits at its end goes out together. An
unanswered publication is unknown, never failed: the same bytes go again.
"""

import asyncio

import structlog

from ltzd import telemetry
from ltzd.chain.node import Node, Publication
from ltzd.errors import NodeUnavailable
from ltzd.operator.book import Book
from ltzd.operator.minting import Minter
from ltzd.operator.policy import MINT
from ltzd.store.signals import Bell
from ltzd.store.transactions import OpenTransaction

log = structlog.get_logger()

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0


class Publisher:
    def __init__(self, node: Node, book: Book, minter: Minter, bell: Bell) -> None:
        self._node = node
        self._book = book
        self._minter = minter
        self._bell = bell
        self._refused = (-1, "")

    async def run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            if not await self.step():
                # Not the bell: each new reward rings it and would hurry a node that is in trouble.
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                continue
            pause = _FIRST_PAUSE_SECONDS
            if self._book.next_to_publish() is None and not await self._minter.sign_next():
                await self._bell.wait()

    async def step(self) -> bool:
        """Publish the oldest bytes that are due; False when the node would not or could not."""
        tx = self._book.next_to_publish()
        if tx is None:
            return True
        try:
            publication, text = await self._node.publish(tx.raw)
        except NodeUnavailable as error:
            telemetry.TRANSACTIONS_SUBMITTED.labels(MINT, "unknown").inc()
            log.warning("publication.unknown", nonce=tx.nonce, reason=error.message)
            return False
        telemetry.TRANSACTIONS_SUBMITTED.labels(MINT, publication.value).inc()
        return self._settle(tx, publication, text)

    def _settle(self, tx: OpenTransaction, publication: Publication, text: str) -> bool:
        match publication:
            case Publication.ACCEPTED:
                self._book.published(tx)
                return True
            case Publication.NONCE_TOO_LOW:
                # Mined already, or used by somebody else: only receipts and finality tell.
                self._book.set_aside(tx)
                return True
        if (tx.nonce, text) != self._refused:
            self._refused = (tx.nonce, text)
            log.error("publication.refused", nonce=tx.nonce, outcome=publication.value, text=text)
        return False
