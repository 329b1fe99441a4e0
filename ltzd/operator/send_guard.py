"""Whether a lane may sign now, and what it says when it may not."""

from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.pausing import LanePause
from ltzd.operator.policy import FEES, NODE, REFUSED
from ltzd.operator.refusal_backoff import RefusalBackoff
from ltzd.rules.operator.fees import Fees

_BLOCKS_IN_FLIGHT = 2
_FEWEST_IN_FLIGHT = 2


class SendGuard:
    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        pause: LanePause,
        backoff: RefusalBackoff,
    ) -> None:
        self._backoff = backoff
        self._context = context
        self._in_flight = in_flight
        self._funds = funds
        self._pause = pause

    def fees(self) -> Fees | None:
        """What to sign at now; None while nothing may be signed."""
        obstacle = self._in_flight.stranded or self._in_flight.held
        if obstacle is None and self._backoff.is_waiting:
            obstacle = REFUSED
        if obstacle is not None:
            self.pause(obstacle)
            return None
        if self._funds.fees is None:
            if self._funds.gas_price is not None:
                self.pause(FEES)
            return None
        return self._funds.fees if self.room() > 0 else None

    @property
    def is_paused(self) -> bool:
        return self._pause.reason is not None

    def room(self) -> int:
        """How many transactions more may be in flight."""
        most = 1 if self._backoff.is_probing else self._context.policy.max_in_flight
        return max(0, most - self._in_flight.count())

    def is_soon_mined(self, gas: int) -> bool:
        """Whether so much gas more can be mined, with all that is in flight, in two blocks.

        Nonces are mined in their order, so work that comes later waits for everything in flight.
        """
        limit = self._funds.block_gas_limit
        if limit is None or self._in_flight.count() < _FEWEST_IN_FLIGHT:
            return True
        return self._in_flight.gas() + gas <= _BLOCKS_IN_FLIGHT * limit

    def can_afford(self, max_cost_wei: int) -> bool:
        return self._funds.can_afford(max_cost_wei, self._in_flight.reserved_wei())

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
