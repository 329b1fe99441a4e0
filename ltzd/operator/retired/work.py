"""A retired wallet's work: nothing is signed, and mints that LTZ refuses for good are voided."""

from collections.abc import Mapping, Sequence

import structlog

from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.view import ChainView
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork
from ltzd.operator.policy import KEY_GONE, RETIRED
from ltzd.operator.resubmission.resubmission import KeylessResubmission
from ltzd.operator.retired.mint_rights import MintRevocation
from ltzd.operator.send_guard import SendGuard
from ltzd.rules.operator.transactions import Inclusion, MintingRevoked
from ltzd.store.database import session
from ltzd.store.operator import transactions
from ltzd.store.operator.transactions import OpenTransaction
from ltzd.values import hex_of

log = structlog.get_logger()


class RetiredWork(LaneWork):
    """`revocation` is None for a wallet that mints nothing."""

    def __init__(self, context: LaneContext, revocation: MintRevocation | None) -> None:
        self._context = context
        self._revocation = revocation

    async def sign_next(self, at_least: int = 1) -> int:
        """Signs nothing: there is no key."""
        return 0

    async def refresh(self, view: ChainView) -> None:
        if self._revocation is not None:
            await self._revocation.refresh(view)

    async def indexed_inclusions(self) -> Mapping[int, Inclusion]:
        """Mints that the indexer has found; a relay has none, and needs a receipt."""
        async with session(self._context.pool) as connection:
            return await transactions.indexed_inclusions(connection, self._context.lane)


class RetiredResubmission:
    """Publishes the stored bytes again, voids mints, and reports when a person must act."""

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        revocation: MintRevocation | None,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._guard = guard
        self._revocation = revocation
        self._offers = KeylessResubmission(context, in_flight)
        self._oldest: tuple[int, float] = (-1, 0.0)
        """The oldest nonce in flight, and since when it has been the oldest."""

    async def resubmit(self, oldest: Sequence[OpenTransaction], head: Header) -> bool:
        if self._revocation is not None and self._revocation.is_final:
            # Receipts were asked for in this round, so what is in flight has none.
            await self._in_flight.apply(
                [(tx, MintingRevoked()) for tx in self._in_flight.oldest_first()]
            )
            return False
        self._guard.pause(self._reason(oldest))
        return await self._offers.resubmit(oldest, head)

    def _reason(self, oldest: Sequence[OpenTransaction]) -> str:
        """The lane's reason to wait; logs once for each nonce that needs a person."""
        if not oldest:
            return RETIRED
        now = self._context.clock()
        first = oldest[0]
        if first.nonce != self._oldest[0]:
            self._oldest = (first.nonce, now)
        if now - self._oldest[1] < self._context.policy.pauses.key_gone:
            return RETIRED
        if self._guard.reason != KEY_GONE:
            log.critical(
                "retired.key_gone",
                wallet=hex_of(self._context.lane.wallet),
                nonce=first.nonce,
                transactions=self._in_flight.count(),
                help="revoke the wallet's role if it mints; else fund it, or let any holder of its "
                "key send a transaction with this nonce",
            )
        return KEY_GONE
