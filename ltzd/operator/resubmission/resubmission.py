"""Deals with a lane's transactions in flight that are not mined by themselves.

With the wallet's key it replaces them by attempts with higher fees, and frees the nonces of refused
bytes by self-transfers. Without the key it can only publish the stored bytes again.
"""

from collections.abc import Sequence
from typing import Protocol

from ltzd.chain.node.answers.typed import Header
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.resubmission.canceller import Canceller
from ltzd.operator.resubmission.fee_bumper import FeeBumper
from ltzd.store.operator.transactions import OpenTransaction


class Resubmission(Protocol):
    async def resubmit(self, oldest: Sequence[OpenTransaction], head: Header) -> bool:
        """Deal with stuck transactions, once a round; return whether bytes are due.

        Raises LaneLost, DatabaseUnavailable, SignerUnavailable.
        """
        ...


class SignedResubmission:
    def __init__(self, fee_bumper: FeeBumper, canceller: Canceller) -> None:
        self._fee_bumper = fee_bumper
        self._canceller = canceller

    async def resubmit(self, oldest: Sequence[OpenTransaction], head: Header) -> bool:
        has_cancelled = await self._canceller.cancel_rejected()
        return await self._fee_bumper.replace_stuck(oldest, head) or has_cancelled


class KeylessResubmission:
    """Publishes the stored bytes again, also those that nodes refuse: a refusal may pass."""

    def __init__(self, context: LaneContext, in_flight: InFlightTransactions) -> None:
        self._context = context
        self._in_flight = in_flight
        self._offered_at = context.clock()

    async def resubmit(self, oldest: Sequence[OpenTransaction], head: Header) -> bool:
        now = self._context.clock()
        if now - self._offered_at >= self._context.policy.repeat_seconds:
            self._offered_at = now
            self._in_flight.retry_refused(oldest)
        return self._in_flight.has_due
