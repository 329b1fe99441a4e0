"""The circuit breaker: opens after failures in a row, probes after growing pauses."""

from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.nodes.breaker import CLOSED, BreakerPolicy, after_failure

POLICY = BreakerPolicy(failures=2, first_pause=1.0, longest_pause=8.0)


def test_one_failure_opens_nothing() -> None:
    assert not after_failure(CLOSED, 0.0, POLICY).is_open


def test_failures_in_a_row_open_the_circuit_until_a_probe_is_due() -> None:
    breaker = after_failure(after_failure(CLOSED, 0.0, POLICY), 5.0, POLICY)
    assert breaker.is_open
    assert breaker.probe_at == 6.0


def test_a_failure_that_counts_for_all_opens_at_once() -> None:
    assert after_failure(CLOSED, 0.0, POLICY, weight=2).is_open


def test_requests_that_fail_while_it_is_open_do_not_lengthen_the_pause() -> None:
    breaker = after_failure(CLOSED, 0.0, POLICY, weight=2)
    assert after_failure(breaker, 0.5, POLICY) == breaker


def test_each_failed_probe_doubles_the_pause_up_to_the_longest() -> None:
    breaker, now, pauses = CLOSED, 0.0, []
    for _ in range(6):
        breaker = after_failure(breaker, now, POLICY, weight=2)
        assert breaker.probe_at is not None
        pauses.append(breaker.probe_at - now)
        now = breaker.probe_at
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 3)), min_size=2, max_size=30))
def test_a_probe_is_always_due_in_the_end(failures: list[tuple[float, int]]) -> None:
    breaker, now = CLOSED, 0.0
    for seconds, weight in failures:
        now += seconds
        breaker = after_failure(breaker, now, POLICY, weight)
    assert breaker.probe_at is not None
    assert breaker.probe_at <= now + POLICY.longest_pause
