"""Publishes the lane's signed bytes in the order of nonces, then signs the next work that is due.

An idle lane signs at once. After a signing, the lane collects rewards for a few milliseconds, and
for longer while more rewards are expected, so that two hundred users who arrive within a second are
paid in a dozen transactions. A batch that is large enough for a transaction of its own waits no
longer than these milliseconds. The queue is read only if something may be in it: a lane that has
emptied it waits until work is announced. A publication without an answer may have succeeded, so the
same bytes are published again.
"""

import asyncio
import math

import structlog

from ltzd import telemetry
from ltzd.chain.node.broadcast import Broadcast, Publication
from ltzd.concurrency.outages import Outage
from ltzd.errors import NodeUnavailable, SignerUnavailable
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork
from ltzd.operator.policy import FUNDS, PUBLICATION, REFUSED
from ltzd.operator.refusal_backoff import RefusalBackoff
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import Unsendable
from ltzd.rules.nodes.publications import PublishOutcome
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.store.wakeups import POLL_SECONDS, Wakeup

log = structlog.get_logger()

_MANY_EXPECTED = 4
"""The least number of expected rewards for which the lane waits longer."""
_NAP_SECONDS = 0.01
"""A pause that is no longer is slept through: neither is the queue read nor are bytes published."""
_AT_ONCE = 64
"""Publications in one request to the node."""
_WHILE_SIGNING_SECONDS = 0.05
"""During a slow signing, due bytes are published each time that this has passed."""


class Publisher:
    """Waits for `work_due`; notifies `refusals` after a node refused a fee, or bytes for good."""

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        work: LaneWork,
        guard: SendGuard,
        backoff: RefusalBackoff,
        broadcast: Broadcast,
        work_due: Wakeup,
        refusals: Wakeup,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._work = work
        self._guard = guard
        self._backoff = backoff
        self._broadcast = broadcast
        self._work_due = work_due
        self._refusals = refusals
        self._signed_at = -math.inf
        self._pause: float | None = None
        """The seconds to wait for work before the queue is read again; with None it is read now."""
        self._refused: dict[int, Publication] = {}
        self._unexplained_since: dict[int, float] = {}
        self._outage = Outage("publication.unknown", "publication.works_again", context.clock)

    async def run(self) -> None:
        pauses = self._context.policy.pauses.publication
        pause = pauses.first
        while True:
            if not await self.publish_due():
                # A plain sleep: each new reward would end a wait for `work_due`, and hurry a node
                # that is in trouble.
                await asyncio.sleep(pause)
                pause = min(pause * 2, pauses.longest)
                continue
            pause = pauses.first
            if not self._in_flight.has_due:
                await self._sign_or_wait()

    async def _sign_or_wait(self) -> None:
        """Read the queue, or wait if the last reading has left no reason to read it again."""
        if self._pause is not None:
            pause, self._pause = self._pause, None
            await self._work_due.wait(pause)
            return
        lingers = self._lingers()
        if 0 < lingers <= _NAP_SECONDS:
            await asyncio.sleep(lingers)
            lingers = 0
        self._work_due.clear()
        try:
            signed = await self._sign(self._work.sufficient_batch if lingers > 0 else 1)
        except (SignerUnavailable, Unsendable) as error:
            # Nothing is stored; the signer's failure has paused the lane.
            log.warning("signing.failed", kind=self._context.lane.kind, reason=error.message)
            signed = 0
        if signed == 0:
            self._pause = lingers if lingers > 0 else POLL_SECONDS
            return
        # The items behind a full batch have waited already: they are signed without delay.
        is_full = signed == self._work.max_batch
        self._signed_at = -math.inf if is_full else self._context.clock()
        if self._work.has_emptied_queue:
            self._pause = POLL_SECONDS

    async def _sign(self, at_least: int) -> int:
        """Sign waiting items; publish meanwhile what has become due, as a signer may be slow."""
        signing = asyncio.ensure_future(self._work.sign_next(at_least))
        pause = _WHILE_SIGNING_SECONDS
        try:
            while not (await asyncio.wait({signing}, timeout=pause))[0]:
                is_done = await self.publish_due()
                pause = _WHILE_SIGNING_SECONDS if is_done else self._longer(pause)
        except BaseException:
            signing.cancel()
            # Retrieved, so that asyncio does not report a failure as lost.
            await asyncio.gather(signing, return_exceptions=True)
            raise
        return signing.result()

    def _longer(self, pause: float) -> float:
        return min(2 * pause, self._context.policy.pauses.publication.longest)

    def _lingers(self) -> float:
        """For how many seconds items gather still; 0 or less if the next may be signed now."""
        if self._work.sufficient_batch == 1:
            return 0
        policy = self._context.policy
        are_many_expected = self._work.expected_items() >= _MANY_EXPECTED
        linger = policy.batch_linger_seconds if are_many_expected else policy.linger_seconds
        return self._signed_at + linger - self._context.clock()

    async def publish_due(self) -> bool:
        """Publish the oldest bytes that are due; return False if the node did not accept them all.

        Each transaction has its own answer: refused bytes delay no others.
        """
        due = self._in_flight.due(_AT_ONCE)
        if not due:
            return True
        kind = self._context.lane.kind
        try:
            answers = await self._broadcast.publish_all([tx.raw for tx in due])
        except NodeUnavailable as error:
            telemetry.TRANSACTIONS_SUBMITTED.labels(kind, "unknown").inc(len(due))
            self._outage.failed(error.message, kind=kind, transaction=due[0].id)
            self._guard.published(PUBLICATION)
            return False
        are_settled, obstacle = [], PUBLICATION
        for tx, (publication, text) in zip(due, answers, strict=True):
            telemetry.TRANSACTIONS_SUBMITTED.labels(kind, publication.value).inc()
            are_settled.append(self._settle(tx, publication, text))
            if publication is PublishOutcome.UNAFFORDABLE:
                obstacle = FUNDS
        is_done = all(are_settled)
        self._guard.published(None if is_done else obstacle)
        if all(publication is not PublishOutcome.UNKNOWN for publication, _ in answers):
            self._outage.over(kind=kind)
        return is_done

    def _settle(self, tx: OpenTransaction, publication: PublishOutcome, text: str) -> bool:
        match publication:
            case PublishOutcome.ACCEPTED:
                self._in_flight.mark_published(tx)
                if not tx.tx.is_abandoned:
                    self._backoff.accepted()
            case PublishOutcome.NONCE_TOO_LOW:
                # Mined already, or another transaction used the nonce: receipts and finality tell.
                self._in_flight.wait_for_receipt(tx)
            case PublishOutcome.UNKNOWN:
                kind = self._context.lane.kind
                self._outage.failed(text, kind=kind, transaction=tx.id)
                return False
            case _:
                return self._settle_refusal(tx, publication, text)
        self._refused.pop(tx.nonce, None)
        self._unexplained_since.pop(tx.nonce, None)
        return True

    def _settle_refusal(self, tx: OpenTransaction, publication: PublishOutcome, text: str) -> bool:
        if self._note_refusal(tx, publication):
            publication = PublishOutcome.REFUSED_FOR_GOOD
        if self._refused.get(tx.nonce) != (publication, text):
            self._refused[tx.nonce] = publication, text
            log.error("publication.refused", nonce=tx.nonce, outcome=publication.value, text=text)
        match publication:
            case PublishOutcome.UNDERPRICED:
                self._in_flight.refuse_price(tx)
            case PublishOutcome.REFUSED_FOR_GOOD:
                if not tx.tx.is_abandoned:
                    self._backoff.refused()
                self._in_flight.reject(tx, REFUSED)
            case _:
                return False
        self._refusals.notify()
        return True

    def _note_refusal(self, tx: OpenTransaction, publication: PublishOutcome) -> bool:
        """Note the outcome; return whether the bytes are given up.

        They are if nodes have refused them without an explanation for so long that this counts as a
        refusal for good.

        Gives up one transaction at a time, the lowest nonce first: if its self-transfer is refused
        as well, the cause is not in the bytes, and the other transactions keep theirs.
        """
        if publication is not PublishOutcome.REFUSED_UNEXPLAINED:
            self._unexplained_since.pop(tx.nonce, None)
            return False
        now = self._context.clock()
        since = self._unexplained_since.setdefault(tx.nonce, now)
        if now - since < self._context.policy.pauses.unexplained_refusal:
            return False
        if not self._in_flight.are_lower_nonces_accepted(tx):
            return False
        self._unexplained_since.clear()
        return True
