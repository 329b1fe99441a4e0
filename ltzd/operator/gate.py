"""Whether a lane may sign now, and what it says when it may not."""

import structlog

from ltzd import telemetry
from ltzd.operator.book import Book
from ltzd.operator.desk import Desk
from ltzd.operator.policy import FEES, REFUSED
from ltzd.operator.purse import Purse
from ltzd.operator.refusals import RefusalBackoff
from ltzd.rules.fees import Fees

log = structlog.get_logger()


class Gate:
    def __init__(self, desk: Desk, book: Book, purse: Purse, backoff: RefusalBackoff) -> None:
        self._backoff = backoff
        self._desk = desk
        self._book = book
        self._purse = purse
        self._paused: str | None = None

    def fees(self) -> Fees | None:
        """What to sign at now; None while nothing may be signed."""
        obstacle = self._book.stranded or self._book.held
        if obstacle is None and self._backoff.is_waiting:
            obstacle = REFUSED
        if obstacle is not None:
            self.pause(obstacle)
            return None
        if self._purse.fees is None:
            self.pause(FEES if self._purse.market else None)
            return None
        return self._purse.fees if self.room() > 0 else None

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    def room(self) -> int:
        """How many transactions more may be in flight."""
        most = 1 if self._backoff.is_probing else self._desk.policy.max_in_flight
        return max(0, most - self._book.count())

    def can_afford(self, worst_wei: int) -> bool:
        return self._purse.can_afford(worst_wei, self._book.reserved_wei())

    def pause(self, reason: str | None) -> int:
        """Say once why nothing is signed although work waits; None: nothing holds the lane.

        Answers 0, how much was signed.
        """
        if reason != self._paused:
            kind = self._desk.lane.kind
            if self._paused is not None:
                telemetry.LANES_PAUSED.labels(kind, self._paused).set(0)
            if reason is not None:
                telemetry.LANES_PAUSED.labels(kind, reason).set(1)
                log.warning("lane.paused", kind=kind, reason=reason)
            self._paused = reason
        return 0
