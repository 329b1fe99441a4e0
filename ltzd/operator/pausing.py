"""The reason why a lane signs nothing, for this process's metric and for the lane's row."""

import structlog

from ltzd.concurrency.clock import loop_time
from ltzd.operator.fleet import lane_gauges
from ltzd.operator.fleet.lane_gauges import LaneIdentity
from ltzd.store.wakeups import Wakeup

log = structlog.get_logger()

_LOG_AGAIN_SECONDS = 60.0


class LanePause:
    """`reason` is None while nothing holds the lane. The object outlasts the lane's terms."""

    def __init__(self, lane: LaneIdentity) -> None:
        self._lane = lane
        self.reason: str | None = None
        self.changes = Wakeup()
        """Notified when the reason changes."""
        self._logged_at: dict[str, float] = {}

    def set(self, reason: str | None) -> None:
        if reason == self.reason:
            return
        if self.reason is not None:
            lane_gauges.LANES_PAUSED.set(self._lane, 0, self.reason)
        if reason is not None:
            lane_gauges.LANES_PAUSED.set(self._lane, 1, reason)
            self._log(reason)
        self.reason = reason
        self.changes.notify()

    def _log(self, reason: str) -> None:
        """At most once a minute for each reason: a reason may come and go with each reward."""
        now = loop_time()
        if now - self._logged_at.get(reason, -_LOG_AGAIN_SECONDS) >= _LOG_AGAIN_SECONDS:
            self._logged_at[reason] = now
            log.warning("lane.paused", kind=self._lane.kind, reason=reason)
