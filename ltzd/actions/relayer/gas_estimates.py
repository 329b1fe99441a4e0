"""Caches how much gas relayed calls needed, by function and length of data.

A node estimates gas by running the call about ten times. Running the call once with the cached
estimate shows as well whether that is enough, so a stale estimate costs one `eth_estimateGas`.
"""

import time

import msgspec

from ltzd.concurrency.clock import Clock
from ltzd.rules.relayer.calls import RelayPlan

_FRESH_SECONDS = 10.0
_ROUNDED_TO = 5_000
_MAX_ENTRIES = 64

_Key = tuple[str, int]
"""A function and the length of its data."""


class _Estimate(msgspec.Struct):
    gas: int
    stale_at: float


class GasEstimateCache:
    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._estimates: dict[_Key, _Estimate] = {}

    def __contains__(self, plan: RelayPlan) -> bool:
        return _key(plan) in self._estimates

    def get(self, plan: RelayPlan) -> int | None:
        """Return the cached gas, which may be too high by now, or None."""
        estimate = self._estimates.get(_key(plan))
        return None if estimate is None else estimate.gas

    def take_renewal(self, plan: RelayPlan) -> bool:
        """Return whether this caller is to renew the estimate, so that a high one comes down.

        True for one caller every 10 s.
        """
        estimate, now = self._estimates.get(_key(plan)), self._clock()
        if estimate is None or now < estimate.stale_at:
            return False
        estimate.stale_at = now + _FRESH_SECONDS
        return True

    def put(self, plan: RelayPlan, gas_needed: int) -> None:
        """Store what the call needed, rounded up; a full cache is emptied first."""
        if len(self._estimates) >= _MAX_ENTRIES:
            self._estimates.clear()
        gas = -(-gas_needed // _ROUNDED_TO) * _ROUNDED_TO
        self._estimates[_key(plan)] = _Estimate(gas, self._clock() + _FRESH_SECONDS)


def _key(plan: RelayPlan) -> _Key:
    return plan.function, len(plan.data)
