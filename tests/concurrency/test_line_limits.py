"""A flood of log lines of one kind is cut, counted, and hides no other kind."""

from ltzd.concurrency.line_limits import LineLimits
from tests.support.clocks import ManualClock


def test_a_flood_is_twenty_lines_a_second_and_a_count() -> None:
    clock = ManualClock()
    limits = LineLimits(clock)
    assert [limits.take("flood") for _ in range(20)] == [0] * 20
    assert [limits.take("flood") for _ in range(980)] == [None] * 980
    assert limits.take("other") == 0, "each kind has lines of its own"
    clock.now += 1.0
    assert limits.take("flood") == 980
    assert limits.take("flood") == 0
