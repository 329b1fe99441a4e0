"""The gauges by kind of lane: each combines the values of all lanes of this process.

A lane sets its own value and removes it when another process serves its wallet. A gauge without any
value has no series: a process that stands by must not show a wallet as empty.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client import Gauge

from ltzd import telemetry
from ltzd.values import Address


class LaneIdentity(Protocol):
    """A lane, or another object that tells its wallet and kind."""

    @property
    def kind(self) -> str: ...

    @property
    def wallet(self) -> Address: ...


class LaneGauge:
    """`combine` makes the value of a kind from the values of its lanes: a sum, or an extreme."""

    def __init__(self, gauge: Gauge, combine: Callable[[Iterable[float]], float]) -> None:
        self._gauge = gauge
        self._combine = combine
        self._values: dict[tuple[str, ...], dict[Address, float]] = {}

    def set(self, lane: LaneIdentity, value: float, *labels: str) -> None:
        """`labels` are those after the kind."""
        key = (lane.kind, *labels)
        values = self._values.setdefault(key, {})
        values[lane.wallet] = value
        self._gauge.labels(*key).set(self._combine(values.values()))

    def remove(self, lane: LaneIdentity) -> None:
        """Forget the lane's values, with all labels."""
        for key, values in list(self._values.items()):
            if key[0] != lane.kind or values.pop(lane.wallet, None) is None:
                continue
            if values:
                self._gauge.labels(*key).set(self._combine(values.values()))
            else:
                del self._values[key]
                self._gauge.remove(*key)


IN_FLIGHT = LaneGauge(telemetry.IN_FLIGHT, sum)
NONCE_GAP = LaneGauge(telemetry.NONCE_GAP, sum)
OLDEST_UNCONFIRMED_SECONDS = LaneGauge(telemetry.OLDEST_UNCONFIRMED_SECONDS, max)
UNDECIDED = LaneGauge(telemetry.UNDECIDED, sum)
RESERVED_WEI = LaneGauge(telemetry.RESERVED_WEI, sum)
BALANCE_WEI = LaneGauge(telemetry.BALANCE_WEI, min)
BASE_FEE_WEI = LaneGauge(telemetry.BASE_FEE_WEI, max)
HELD_BY_CAP = LaneGauge(telemetry.HELD_BY_CAP, max)
BRANDS_HELD = LaneGauge(telemetry.BRANDS_HELD, max)
LANES_HELD = LaneGauge(telemetry.LANES_HELD, sum)
LANES_PAUSED = LaneGauge(telemetry.LANES_PAUSED, sum)

_OF_HOLDERS = (
    IN_FLIGHT,
    NONCE_GAP,
    OLDEST_UNCONFIRMED_SECONDS,
    UNDECIDED,
    RESERVED_WEI,
    BALANCE_WEI,
    BASE_FEE_WEI,
    HELD_BY_CAP,
    BRANDS_HELD,
    LANES_PAUSED,
)


def remove(lane: LaneIdentity) -> None:
    """Forget the values of a lane that another process serves, or that has ended.

    `LANES_HELD` stays: its sum over all processes must show 0 when no process serves a kind.
    """
    for gauge in _OF_HOLDERS:
        gauge.remove(lane)
