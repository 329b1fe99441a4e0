"""Opens and runs one lane of the fleet, and does so again after a failure."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec
import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import loop_time
from ltzd.errors import Misconfigured, Unavailable
from ltzd.values import Address

log = structlog.get_logger()


class FleetLane(Protocol):
    """The part of a lane that the fleet and the admin server use."""

    @property
    def kind(self) -> str: ...

    @property
    def wallet(self) -> Address: ...

    @property
    def is_serving(self) -> bool:
        """Whether this process holds the wallet."""
        ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def stopped(self) -> str | None: ...

    @property
    def balance_wei(self) -> int | None: ...

    async def run(self) -> None:
        """Serve the wallet until cancelled. Returns if nothing is left to do for it."""
        ...


LaneOpener = Callable[[], AbstractAsyncContextManager[FleetLane]]
"""Opens a lane with its signer, until the end of the block.

Raises Misconfigured for a fault that a person must correct, and Unavailable.
"""


class WalletRetired(Misconfigured):
    """A person has decided that no lane shall sign for this wallet."""


class SlotPauses(msgspec.Struct, frozen=True):
    """Seconds between two attempts to open a lane, or to run it after it has failed.

    The pause doubles from `first` to `longest` for a fault that a person must correct: decrypting a
    keystore takes a second.
    """

    first: float = 1.0
    longest: float = 15.0
    after_failure: float = 10.0
    between_logs: float = 60.0


class LaneSlot:
    """`name` tells the wallet in logs and messages: a setting's name, or its address.

    `is_required` says that this process should be able to serve the wallet, `is_retired` that no
    process shall. `fault` is why no lane runs here, `failure` is the error that ended the lane.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        open_lane: LaneOpener,
        pauses: SlotPauses,
        *,
        is_required: bool,
    ) -> None:
        self.name = name
        self.kind = kind
        self.is_required = is_required
        self.is_retired = False
        self.lane: FleetLane | None = None
        self.fault: str | None = None
        self.failure: str | None = None
        self._open_lane = open_lane
        self._pauses = pauses
        self._logged = "", 0.0

    @property
    def is_settled(self) -> bool:
        """Whether this slot's state will not change in the next moments."""
        if self.lane is None:
            return self.fault is not None
        return self.lane.is_ready or self.lane.stopped is not None or self.failure is not None

    async def run(self) -> None:
        """Run the lane until cancelled, or until nothing is left to do for the wallet."""
        pause = self._pauses.first
        while True:
            try:
                async with self._open_lane() as lane:
                    self.lane, self.fault, self.failure = lane, None, None
                    pause = self._pauses.first
                    await lane.run()
                    return
            except Misconfigured as error:
                self._report(error.message)
                self.is_retired = isinstance(error, WalletRetired)
                wait, pause = pause, min(2 * pause, self._pauses.longest)
            except Unavailable as error:
                self._report(error.message)
                wait = self._pauses.first
            except Exception as error:
                telemetry.LANE_FAILURES.labels(self.kind).inc()
                self.failure = f"it failed with {type(error).__name__}; see lane.failed in the log"
                log.exception("lane.failed", kind=self.kind, wallet=self.name)
                wait = self._pauses.after_failure
            await asyncio.sleep(wait)

    def _report(self, fault: str) -> None:
        """Log the fault when it is new, and then once a minute."""
        self.lane, self.fault = None, fault
        now = loop_time()
        logged, logged_at = self._logged
        if fault != logged or now - logged_at >= self._pauses.between_logs:
            self._logged = fault, now
            log.error("wallet.not_served", kind=self.kind, wallet=self.name, reason=fault)
