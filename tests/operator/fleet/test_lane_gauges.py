"""A gauge by kind combines the lanes of a process, and a lane that is gone leaves nothing in it."""

import pytest
from prometheus_client import CollectorRegistry, Gauge

from ltzd.operator.fleet.lane_gauges import LaneGauge
from ltzd.store.operator.lanes import Lane
from tests.support.rows.core import a_wallet

FIRST, SECOND, MINTING = (
    Lane(1, a_wallet(1), 1, "relay"),
    Lane(1, a_wallet(2), 1, "relay"),
    Lane(1, a_wallet(3), 1, "mint"),
)


class Shown:
    """A gauge with the labels `kind` and `reason`, and its values."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.gauge = Gauge("g", "A gauge.", ("kind", "reason"), registry=self._registry)

    def value(self, kind: str, reason: str = "") -> float | None:
        return self._registry.get_sample_value("g", {"kind": kind, "reason": reason})


@pytest.fixture
def shown() -> Shown:
    return Shown()


def test_a_sum_counts_every_lane_of_the_kind_once(shown: Shown) -> None:
    gauge = LaneGauge(shown.gauge, sum)
    for lane, number in ((FIRST, 3), (SECOND, 4), (MINTING, 9), (FIRST, 5)):
        gauge.set(lane, number, "")
    assert (shown.value("relay"), shown.value("mint")) == (9, 9)


def test_a_lane_that_is_gone_counts_no_more(shown: Shown) -> None:
    gauge = LaneGauge(shown.gauge, min)
    gauge.set(FIRST, 3, "")
    gauge.set(SECOND, 4, "")
    gauge.remove(FIRST)
    gauge.remove(FIRST)
    assert shown.value("relay") == 4
    gauge.remove(SECOND)
    assert shown.value("relay") is None
    gauge.set(FIRST, 7, "")
    assert shown.value("relay") == 7


def test_labels_after_the_kind_are_separate_and_go_together(shown: Shown) -> None:
    gauge = LaneGauge(shown.gauge, sum)
    gauge.set(FIRST, 1, "fees")
    gauge.set(FIRST, 0, "fees")
    gauge.set(FIRST, 1, "funds")
    gauge.set(SECOND, 1, "funds")
    assert (shown.value("relay", "fees"), shown.value("relay", "funds")) == (0, 2)
    gauge.remove(FIRST)
    assert (shown.value("relay", "fees"), shown.value("relay", "funds")) == (None, 1)
