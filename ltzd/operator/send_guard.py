"""Whether a lane may sign now, and what it says when it may not."""

from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import Book
from ltzd.operator.lane_context import Desk
from ltzd.operator.pausing import LanePause
from ltzd.operator.policy import FEES, NODE, REFUSED
from ltzd.operator.refusal_backoff import RefusalBackoff
from ltzd.rules.operator.fees import Fees

_BLOCKS_IN_FLIGHT = 2
_FEWEST_IN_FLIGHT = 2


class SendGuard:
    def __init__(
        self, desk: Desk, book: Book, purse: FundsTracker, pause: LanePause, backoff: RefusalBackoff
    ) -> None:
        self._backoff = backoff
        self._desk = desk
        self._book = book
        self._purse = purse
        self._pause = pause

    def fees(self) -> Fees | None:
        """What to sign at now; None while nothing may be signed."""
        obstacle = self._book.stranded or self._book.held
        if obstacle is None and self._backoff.is_waiting:
            obstacle = REFUSED
        if obstacle is not None:
            self.pause(obstacle)
            return None
        if self._purse.fees is None:
            if self._purse.market is not None:
                self.pause(FEES)
            return None
        return self._purse.fees if self.room() > 0 else None

    @property
    def is_paused(self) -> bool:
        return self._pause.reason is not None

    def room(self) -> int:
        """How many transactions more may be in flight."""
        most = 1 if self._backoff.is_probing else self._desk.policy.max_in_flight
        return max(0, most - self._book.count())

    def is_soon_mined(self, gas: int) -> bool:
        """Whether so much gas more can be mined, with all that is in flight, in two blocks.

        Nonces are mined in their order, so work that comes later waits for everything in flight.
        """
        limit = self._purse.block_gas_limit
        if limit is None or self._book.count() < _FEWEST_IN_FLIGHT:
            return True
        return self._book.gas() + gas <= _BLOCKS_IN_FLIGHT * limit

    def can_afford(self, worst_wei: int) -> bool:
        return self._purse.can_afford(worst_wei, self._book.reserved_wei())

    def pause(self, reason: str | None) -> int:
        """Say once why nothing is signed although work waits; None: nothing holds the lane.

        Answers 0, how much was signed.
        """
        self._pause.set(reason)
        return 0

    def hear_node(self, *, answers: bool) -> None:
        """Without a node nothing is signed, whether or not anything waits."""
        if not answers:
            self.pause(NODE)
        elif self._pause.reason == NODE:
            self.pause(None)
