"""A node's rate: unlimited until a refusal, then halved, paused and raised a little at a time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ltzd.rules.nodes.rates import (
    Rate,
    after_acceptance,
    after_rate_refusal,
    after_sending,
    ready_at,
)


def test_a_node_without_refusals_is_asked_at_once() -> None:
    rate = Rate()
    for _ in range(1_000):
        assert ready_at(rate, 5.0) == 5.0
        rate = after_sending(rate, 100, 5.0)


def test_no_call_is_sent_before_the_pause_that_the_node_asks_for_is_over() -> None:
    rate = after_rate_refusal(Rate(), 10.0, 7.0)
    assert ready_at(rate, 10.0) >= 16.5
    assert ready_at(rate, 12.0) >= 16.5


def test_a_pause_for_hours_is_tried_again_after_a_minute() -> None:
    assert ready_at(after_rate_refusal(Rate(), 0.0, 86_400.0), 0.0) <= 60.0


def test_pauses_double_while_the_node_refuses() -> None:
    rate, now, pauses = Rate(), 0.0, []
    for _ in range(5):
        rate = after_rate_refusal(rate, now)
        pauses.append(rate.paused_until - now)
        now = rate.paused_until
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert after_acceptance(rate, 1).pause_seconds == 0.25


def test_refusals_of_calls_sent_together_halve_the_rate_once() -> None:
    rate = Rate()
    for _ in range(100):
        rate = after_sending(rate, 1, 0.0)
    for _ in range(20):
        rate = after_rate_refusal(rate, 0.1)
    assert rate.per_second == 50


def test_a_node_that_refuses_everything_for_a_while_keeps_its_rate() -> None:
    rate, now = Rate(), 0.0
    for _ in range(100):
        rate = after_sending(rate, 1, now)
    for _ in range(10):
        rate = after_rate_refusal(rate, now, 1.0)
        now = ready_at(rate, now) + 0.1
        rate = after_sending(rate, 1, now)
    assert rate.per_second == 50
    rate = after_rate_refusal(after_acceptance(rate, 1), now, 1.0)
    assert rate.per_second is not None
    assert rate.per_second < 50


def test_a_rate_that_is_never_refused_again_is_forgotten() -> None:
    rate, now = after_rate_refusal(Rate(), 0.0), 0.0
    while rate.per_second is not None:
        now = ready_at(rate, now)
        rate = after_acceptance(after_sending(rate, 10, now), 10)
        assert now < 2 * 3_600


def test_a_large_batch_delays_the_next_call_by_two_seconds_at_most() -> None:
    rate = after_sending(after_rate_refusal(Rate(), 0.0), 5_000, 1.0)
    assert ready_at(rate, 1.0) <= 3.0


@settings(deadline=None, max_examples=40)
@given(st.integers(5, 100), st.integers(1, 20))
def test_a_node_with_a_true_rate_refuses_few_calls(per_second: int, calls: int) -> None:
    """Requests of `calls` calls each, at once when allowed, for two minutes."""
    calls = min(calls, per_second)
    rate, now, second, used, refused, accepted = Rate(), 0.0, 0, 0, 0, 0
    while now < 120:
        now = ready_at(rate, now)
        rate = after_sending(rate, calls, now)
        if int(now) != second:
            second, used = int(now), 0
        if used + calls > per_second:
            refused += 1
            rate = after_rate_refusal(rate, now)
        else:
            used, accepted = used + calls, accepted + 1
            rate = after_acceptance(rate, calls)
        now += 0.001
    assert refused <= accepted / 4 + 20
    assert accepted * calls >= 120 * per_second / 5


@given(
    st.lists(st.tuples(st.sampled_from(["send", "take", "refuse"]), st.floats(0, 5)), max_size=60)
)
def test_the_next_call_is_never_more_than_a_minute_away(steps: list[tuple[str, float]]) -> None:
    rate, now = Rate(), 0.0
    for step, seconds in steps:
        now += seconds
        if step == "send":
            now = ready_at(rate, now)
            rate = after_sending(rate, 7, now)
        elif step == "take":
            rate = after_acceptance(rate, 7)
        else:
            rate = after_rate_refusal(rate, now, seconds if seconds > 1 else None)
        assert now <= ready_at(rate, now) <= now + 62
        assert rate.per_second is None or rate.per_second >= 1
