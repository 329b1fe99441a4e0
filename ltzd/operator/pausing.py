"""Why a lane signs nothing: in this process's metric, and for the lane's row, which others read."""

import time

import structlog

from ltzd import telemetry
from ltzd.concurrency.clock import Clock
from ltzd.store.wakeups import Wakeup

log = structlog.get_logger()

_TOLD_AGAIN_SECONDS = 60.0


class LanePause:
    """`reason` is None while nothing holds the lane. Outlasts the lane's terms."""

    def __init__(self, kind: str, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._kind = kind
        self.reason: str | None = None
        self.changes = Wakeup()
        """Rings when the reason is another one."""
        self._told_at: dict[str, float] = {}

    def set(self, reason: str | None) -> None:
        if reason == self.reason:
            return
        if self.reason is not None:
            telemetry.LANES_PAUSED.labels(self._kind, self.reason).set(0)
        if reason is not None:
            telemetry.LANES_PAUSED.labels(self._kind, reason).set(1)
            self._tell(reason)
        self.reason = reason
        self.changes.notify()

    def _tell(self, reason: str) -> None:
        """Once a minute for each reason: one may come and go with every reward."""
        now = self._clock()
        if now - self._told_at.get(reason, -_TOLD_AGAIN_SECONDS) >= _TOLD_AGAIN_SECONDS:
            self._told_at[reason] = now
            log.warning("lane.paused", kind=self._kind, reason=reason)
