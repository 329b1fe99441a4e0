"""Hands the lane's signed bytes to the node in the order of nonces, then signs what is due next.

An idle lane signs at once. While a publication is under way rewards gather, and it counts as under
way for a few milliseconds at least; for longer while more rewards are known to be on their way, so
that two hundred users who take a second to arrive are paid in a dozen transactions, and not in as
many as could be published meanwhile. Nothing gathers any longer once it is worth a transaction of
its own. An unanswered publication is unknown, never failed: the same bytes go again.
"""

import asyncio
import math

import structlog

from ltzd import telemetry
from ltzd.chain.node.publish_outcomes import PublishOutcome
from ltzd.errors import NodeUnavailable
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork
from ltzd.operator.policy import REFUSED
from ltzd.operator.refusal_backoff import RefusalBackoff
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.store.wakeups import POLL_SECONDS, Wakeup

log = structlog.get_logger()

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_CROWD = 4
"""Rewards on their way that are worth waiting for."""
_AT_ONCE = 64
"""Publications in one request to the node."""


class Publisher:
    """`bell` says that something may be due; `refusals` tells the watcher of too low fees, and of
    bytes that will never do."""

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        work: LaneWork,
        backoff: RefusalBackoff,
        bell: Wakeup,
        refusals: Wakeup,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._work = work
        self._backoff = backoff
        self._wakeup = bell
        self._refusals = refusals
        self._signed_at = -math.inf
        self._refused: dict[int, str] = {}

    async def run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            if not await self.step():
                # Not the bell: each new reward rings it and would hurry a node that is in trouble.
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                continue
            pause = _FIRST_PAUSE_SECONDS
            if not self._in_flight.has_due:
                await self._sign_or_wait()

    async def _sign_or_wait(self) -> None:
        gathers = self._signed_at + self._gather_seconds() - self._context.clock()
        signed = await self._work.sign_next(at_least=self._work.enough if gathers > 0 else 1)
        if signed == 0:
            await self._wakeup.wait(gathers if gathers > 0 else POLL_SECONDS)
        else:
            # A full batch left others behind, who have gathered already.
            self._signed_at = -math.inf if signed == self._work.largest else self._context.clock()

    def _gather_seconds(self) -> float:
        policy = self._context.policy
        is_crowd = self._work.on_the_way() >= _CROWD
        return policy.batch_linger_seconds if is_crowd else policy.linger_seconds

    async def step(self) -> bool:
        """Publish the oldest bytes that are due; False when the node would not or could not.

        Each answer counts by itself: bytes that are refused hold up no others.
        """
        due = self._in_flight.due(_AT_ONCE)
        if not due:
            return True
        kind = self._context.lane.kind
        try:
            answers = await self._context.node.publish_all([tx.raw for tx in due])
        except NodeUnavailable as error:
            telemetry.TRANSACTIONS_SUBMITTED.labels(kind, "unknown").inc(len(due))
            log.warning("publication.unknown", nonce=due[0].nonce, reason=error.message)
            return False
        outcomes = []
        for tx, (publication, text) in zip(due, answers, strict=True):
            telemetry.TRANSACTIONS_SUBMITTED.labels(kind, publication.value).inc()
            outcomes.append(self._settle(tx, publication, text))
        return all(outcomes)

    def _settle(self, tx: OpenTransaction, publication: PublishOutcome, text: str) -> bool:
        match publication:
            case PublishOutcome.ACCEPTED:
                self._in_flight.published(tx)
                if not tx.tx.is_abandoned:
                    self._backoff.accepted()
            case PublishOutcome.NONCE_TOO_LOW:
                # Mined already, or used by somebody else: only receipts and finality tell.
                self._in_flight.set_aside(tx)
            case PublishOutcome.UNKNOWN:
                log.warning("publication.unknown", nonce=tx.nonce, reason=text)
                return False
            case _:
                return self._settle_refusal(tx, publication, text)
        self._refused.pop(tx.nonce, None)
        return True

    def _settle_refusal(self, tx: OpenTransaction, publication: PublishOutcome, text: str) -> bool:
        if self._refused.get(tx.nonce) != text:
            self._refused[tx.nonce] = text
            log.error("publication.refused", nonce=tx.nonce, outcome=publication.value, text=text)
        match publication:
            case PublishOutcome.UNDERPRICED:
                self._in_flight.refused(tx)
            case PublishOutcome.REFUSED_FOR_GOOD:
                if not tx.tx.is_abandoned:
                    self._backoff.refused()
                self._in_flight.reject(tx, REFUSED)
            case _:
                return False
        self._refusals.notify()
        return True
