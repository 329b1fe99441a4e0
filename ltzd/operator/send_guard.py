"""Decides whether a lane may sign now, and records the reason when it may not."""

from ltzd.errors import NodeUnavailable
from ltzd.operator.funds import FundsTracker
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_fence import LaneFence
from ltzd.operator.orders import LaneOrders
from ltzd.operator.pausing import LanePause
from ltzd.operator.policy import (
    DRAINING,
    FEES,
    FOREIGN_USE,
    FUNDS,
    NODE,
    PUBLICATION,
    RECEIPTS,
    REFUSED,
    SIGNER,
)
from ltzd.operator.refusal_backoff import RefusalBackoff
from ltzd.operator.signer_health import SignerHealth
from ltzd.rules.operator.evidence import NonceUse
from ltzd.rules.operator.fees import Fees
from ltzd.store.operator.wallets import WalletState

_BLOCKS_IN_FLIGHT = 2
_ALWAYS_IN_FLIGHT = 2
"""The number of transactions that may be in flight whatever gas they use."""
_SILENCE = frozenset(("refused_connection", "timeout", "http_status", "none_usable"))
"""Kinds of faults that mean that no node answers. Any other kind means that a node gave a useless
answer, or that ltzd has too many requests under way to ask a node."""


class SendGuard:
    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        funds: FundsTracker,
        pause: LanePause,
        backoff: RefusalBackoff,
        orders: LaneOrders,
        signer_health: SignerHealth,
        fence: LaneFence,
    ) -> None:
        self._context = context
        self._fence = fence
        self._orders = orders
        self._signer_health = signer_health
        self._in_flight = in_flight
        self._funds = funds
        self._pause = pause
        self._backoff = backoff
        self._unpublished_since: float | None = None
        self._disputed_seconds = 0.0
        self._silent_since: float | None = None

    @property
    def is_draining(self) -> bool:
        """Whether the lane signs nothing new, and still finishes what only its wallet can do."""
        return self._orders.obstacle == DRAINING and self._orders.state is WalletState.DRAINING

    def fees_or_pause(self, *, finishes: bool = False) -> Fees | None:
        """The fees to sign with, or None if nothing may be signed; an obstacle pauses the lane.

        `finishes`: the caller signs only work that no other wallet can do, so a draining wallet may
        sign, too.
        """
        order = None if finishes and self.is_draining else self._orders.obstacle
        obstacle = (
            self._fence.obstacle
            or order
            or self._in_flight.blocked_reason
            or self._in_flight.held_reason
        )
        if obstacle is None and self._backoff.is_waiting:
            obstacle = REFUSED
        if obstacle is None and self._signer_health.is_waiting:
            obstacle = SIGNER
        if obstacle is not None:
            self.pause(obstacle)
            return None
        if self._funds.fees is None:
            if self._funds.gas_price is not None:
                self.pause(FEES)
            return None
        if self.free_slots() == 0:
            self._report_disputes()
            return None
        return self._funds.fees

    @property
    def is_paused(self) -> bool:
        return self._pause.reason is not None

    @property
    def has_requests(self) -> bool:
        """Whether a person asks something of a transaction of the wallet."""
        return self._orders.has_requests

    @property
    def is_wallet_shared(self) -> bool:
        """Whether something else has signed with the wallet's key."""
        return self._fence.obstacle == FOREIGN_USE

    async def found_foreign_use(self, use: NonceUse, nonce: int) -> None:
        """Sign nothing from now on, unless a person has accounted for this use of a nonce."""
        await self._fence.found_foreign_use(use, nonce)

    @property
    def reason(self) -> str | None:
        """The reason why the lane signs nothing, or None while nothing holds it."""
        return self._pause.reason

    @property
    def is_signer_doubtful(self) -> bool:
        """Whether the last signature failed, so that the next one tests the signer."""
        return self._signer_health.is_doubtful

    def free_slots(self) -> int:
        """How many more transactions may be in flight."""
        limit = 1 if self._backoff.is_probing else self._context.policy.max_in_flight
        return max(0, limit - self._in_flight.count())

    def fits_next_blocks(self, gas: int, lanes: int = 1) -> bool:
        """Whether `gas` more, with all in flight, fits into this lane's share of two blocks.

        Transactions are mined in the order of their nonces, so a new one waits for everything in
        flight. `lanes` lanes share the blocks.
        """
        limit = self._funds.block_gas_limit
        if limit is None or self._in_flight.count() < _ALWAYS_IN_FLIGHT:
            return True
        fits = self._in_flight.gas() + gas <= _BLOCKS_IN_FLIGHT * limit // lanes
        if not fits:
            self._report_disputes()
        return fits

    def can_afford(self, max_cost_wei: int) -> bool:
        return self._funds.can_afford(max_cost_wei, self._in_flight.reserved_wei())

    def affordable_gas(self, fees: Fees) -> int:
        """The gas for which the balance pays beside everything in flight."""
        return self._funds.affordable_gas(fees, self._in_flight.reserved_wei())

    def pause(self, reason: str) -> None:
        """Record why nothing is signed although work waits."""
        self._pause.set(reason)

    def resume(self) -> None:
        """Record that nothing holds the lane."""
        self._pause.set(None)

    def published(self, obstacle: str | None) -> None:
        """Record the obstacle of a publication, or None if it succeeded.

        The lane signs nothing new while there is an obstacle, which is reported once it has lasted
        for `standstill`.
        """
        now = self._context.clock()
        if obstacle is None:
            if self._unpublished_since is not None and self._pause.reason in {PUBLICATION, FUNDS}:
                self.resume()
            self._unpublished_since = None
        elif self._unpublished_since is None:
            self._unpublished_since = now
        elif (
            now - self._unpublished_since >= self._context.policy.pauses.standstill
            and self._orders.obstacle is None
            and self._pause.reason != NODE
        ):
            self.pause(obstacle)

    def receipts_disputed(self, seconds: float) -> None:
        """Record for how many seconds nodes have disagreed about a receipt of the lane."""
        self._disputed_seconds = seconds

    def _report_disputes(self) -> None:
        if self._disputed_seconds >= self._context.policy.pauses.standstill:
            self.pause(RECEIPTS)

    def node_failed(self, error: NodeUnavailable) -> None:
        """Pause the lane, whether or not work waits: without a node nothing is signed."""
        self.pause(NODE)
        if error.kind not in _SILENCE:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self._context.clock()

    def node_answered(self) -> None:
        self._silent_since = None
        if self._pause.reason == NODE:
            self.resume()

    @property
    def silent_seconds(self) -> float:
        """For how long no node has answered, whatever else holds the lane; 0 while one answers."""
        since = self._silent_since
        return 0.0 if since is None else self._context.clock() - since
