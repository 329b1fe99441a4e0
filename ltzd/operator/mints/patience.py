"""Holds back the rewards of patient brands while base fees are high, within each brand's bound.

`rules/operator/patience.py` decides, brand by brand, by the age of the brand's oldest reward and by
the base fees of recent blocks. The queue is read without the brands that are held
(`rewards.queued`), so their rewards delay no other brand's. Payments are never held. A wait is not
stored: a restarted lane reads the ages from the database and the base fees from the node.
"""

import math
from collections.abc import Sequence

import structlog

from ltzd import telemetry
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.operator.fleet import lane_gauges
from ltzd.operator.lane_context import LaneContext
from ltzd.rules.operator.patience import RECENT_BLOCKS, FeeWindow, release
from ltzd.store.brands import configurations
from ltzd.store.database import Connection, session
from ltzd.store.operator import patience
from ltzd.values import Address

log = structlog.get_logger()

_PAUSE_SECONDS = 1.0
_BRANDS_A_SECOND = 5_000
"""Many patient brands are read less often, but always within the lead of the rule."""
_LONGEST_PAUSE_SECONDS = 3.0


class PatientBrands:
    """The patient brands of one lane in one term; `held` are those whose rewards wait, as of the
    last `update_held`."""

    def __init__(self, context: LaneContext) -> None:
        self._context = context
        self._revision = -1
        self._patience: dict[Address, int] = {}
        self._held_since: dict[Address, float] = {}
        """By brand with waiting rewards: since when they wait, on the lane's monotonic clock."""
        self._base_fees: dict[int, int] = {}
        """By block, of RECENT_BLOCKS at most."""
        self._window: FeeWindow | None = None
        self._view: ChainView | None = None
        self._fees_view: ChainView | None = None
        self._next_update_at = -math.inf
        self.held: Sequence[Address] = ()

    @property
    def is_holding(self) -> bool:
        """Whether rewards waited for a cheaper block at the last `update_held`."""
        return bool(self._held_since)

    def refresh(self, view: ChainView) -> None:
        """Note a new block, whose fees the next `update_held` judges."""
        self._view = view
        self._next_update_at = -math.inf

    async def update_held(self) -> None:
        """Decide again which brands are held, about once a second and after each new block.

        Raises DatabaseUnavailable.
        """
        now = self._context.clock()
        if now < self._next_update_at:
            return
        async with session(self._context.pool) as connection:
            await self._refresh_brands(connection)
            ages = (
                await patience.oldest_seconds(connection, self._patience) if self._patience else {}
            )
        if self._patience and self._view is not None and self._fees_view is not self._view:
            await self._read_fees(self._view)
        self._judge(ages)
        pause = max(_PAUSE_SECONDS, len(self._patience) / _BRANDS_A_SECOND)
        self._next_update_at = now + min(pause, _LONGEST_PAUSE_SECONDS)

    async def _refresh_brands(self, connection: Connection) -> None:
        revision = await configurations.latest_revision(connection)
        if revision != self._revision:
            self._patience = await patience.patient_brands(connection)
            self._revision = revision

    def _judge(self, ages: dict[Address, float]) -> None:
        now = self._context.clock()
        held = []
        for brand, seconds in self._patience.items():
            age = ages.get(brand)
            waited = age or 0.0
            if waited >= 0:
                # The database's clock may have been set back, but not by enough for a negative age.
                waited = max(waited, now - self._held_since.get(brand, now))
            reason = release(seconds, waited, self._window)
            if reason is None:
                held.append(brand)
                if age is not None:
                    self._held_since.setdefault(brand, now)
            ends = reason is not None or age is None
            if ends and self._held_since.pop(brand, None) is not None:
                # No reason: another lane has minted the rewards.
                label = "other_lane" if reason is None else reason.value
                telemetry.PATIENCE_ENDED.labels(label).inc()
        self._held_since = {
            brand: since for brand, since in self._held_since.items() if brand in self._patience
        }
        self.held = held
        lane_gauges.BRANDS_HELD.set(self._context.lane, len(self._held_since))

    async def _read_fees(self, view: ChainView) -> None:
        """Read the base fees of the blocks since the last reading, at first of RECENT_BLOCKS.

        A node without a fee history has the base fee of the view's block.
        """
        self._fees_view = view
        head = view.head
        if head.base_fee is None:
            self._window = None
            return
        newest = max(self._base_fees, default=head.number - RECENT_BLOCKS)
        count = min(RECENT_BLOCKS, max(1, head.number - newest))
        try:
            *fees, next_base_fee = await view.node.base_fees(head, count)
        except NodeUnavailable as error:
            log.info("patience.no_fee_history", reason=error.message)
            fees, next_base_fee = [head.base_fee], head.base_fee
        oldest = head.number - len(fees) + 1
        self._base_fees |= dict(enumerate(fees, oldest))
        self._base_fees = {
            number: fee
            for number, fee in self._base_fees.items()
            if head.number - RECENT_BLOCKS < number <= head.number
        }
        self._window = FeeWindow(tuple(sorted(self._base_fees.values())), next_base_fee)
