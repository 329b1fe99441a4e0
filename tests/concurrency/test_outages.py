"""An outage is one line when it begins and one line when it is over."""

from structlog.testing import capture_logs

from ltzd.concurrency.outages import Outage
from tests.support.clocks import ManualClock


def test_an_outage_is_two_lines_however_often_it_failed() -> None:
    clock = ManualClock()
    outage = Outage("node.away", "node.back", clock)
    with capture_logs() as lines:
        outage.over()
        for _ in range(7):
            outage.failed("no answer", kind="mint")
            clock.now += 0.5
        assert outage.is_on
        outage.over(kind="mint")
        outage.over(kind="mint")
    assert lines == [
        {"event": "node.away", "log_level": "warning", "reason": "no answer", "kind": "mint"},
        {
            "event": "node.back",
            "log_level": "info",
            "failures": 7,
            "seconds": 3.5,
            "kind": "mint",
        },
    ]


def test_the_next_outage_is_told_again() -> None:
    outage = Outage("node.away", "node.back", ManualClock())
    with capture_logs() as lines:
        for _ in range(2):
            outage.failed("no answer")
            outage.over()
    assert [line["event"] for line in lines] == ["node.away", "node.back"] * 2
