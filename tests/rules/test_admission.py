"""How many requests are worked on at once, and which may wait."""

import math

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.rules.admission import (
    AdmissionPolicy,
    Urgency,
    equal_part,
    is_standing,
    may_begin,
    may_begin_first,
    most_waiting,
    next_limit,
    retry_seconds,
)

POLICY = AdmissionPolicy()


def test_the_limit_falls_while_the_event_loop_is_late_and_never_below_the_least() -> None:
    limits = [POLICY.most]
    for _ in range(20):
        limits.append(next_limit(limits[-1], 0.1, 0.0, is_short=True, policy=POLICY))
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] == POLICY.least


def test_the_limit_rises_only_while_requests_wait_and_nothing_is_late() -> None:
    def after(limit: int, delay: float, *, is_short: bool = True) -> int:
        return next_limit(limit, delay, 0.5, is_short=is_short, policy=POLICY)

    assert after(200, 0.0) == 200 + POLICY.step
    assert after(200, 0.0, is_short=False) == 200
    assert after(200, 0.01) == 200
    assert after(POLICY.most, 0.0) == POLICY.most


def test_the_limit_falls_while_the_process_computes_all_the_time() -> None:
    assert next_limit(200, 0.0, 0.86, is_short=True, policy=POLICY) == 160
    assert next_limit(POLICY.least, 0.0, 1.0, is_short=True, policy=POLICY) == POLICY.least


@given(
    limit=st.integers(1, 10_000),
    delay=st.floats(0, 10),
    busy=st.floats(0, 2),
    is_short=st.booleans(),
)
def test_the_limit_stays_within_its_bounds(
    limit: int, delay: float, busy: float, is_short: bool
) -> None:
    start = max(POLICY.least, min(POLICY.most, limit))
    limited = next_limit(start, delay, busy, is_short=is_short, policy=POLICY)
    assert POLICY.least <= limited <= POLICY.most


@given(limit=st.integers(8, 1_024), parties=st.integers(1, 50), share=st.floats(1, 4))
def test_however_many_parties_are_busy_a_newcomer_finds_a_slot(
    limit: int, parties: int, share: float
) -> None:
    policy = replace(POLICY, share=share)
    held = [0] * parties
    for _ in range(limit):
        takers = [n for n in range(parties) if may_begin(held[n], limit - sum(held), policy)]
        if not takers:
            break
        held[min(takers, key=held.__getitem__)] += 1
    if parties < limit // 8:
        assert may_begin(0, limit - sum(held), policy)
        assert max(held) - min(held) <= 1


def test_a_party_alone_gets_three_quarters_of_the_slots() -> None:
    held = 0
    while may_begin(held, 128 - held, POLICY):
        held += 1
    assert held == 96


def test_requests_of_first_leave_half_of_the_slots_to_others_that_wait() -> None:
    assert may_begin_first(63, 128, others_wait=True, policy=POLICY)
    assert not may_begin_first(64, 128, others_wait=True, policy=POLICY)
    assert may_begin_first(127, 128, others_wait=False, policy=POLICY)


def test_a_line_that_stands_is_shorter_than_a_burst() -> None:
    def most(urgency: Urgency, *, stands: bool, rate: float = 2_000.0) -> int:
        return most_waiting(urgency, limit=128, begun_per_second=rate, stands=stands, policy=POLICY)

    assert most(Urgency.QUICK, stands=False) == POLICY.burst
    assert most(Urgency.QUICK, stands=True) == 128 // 3
    assert most(Urgency.PATIENT, stands=False) == POLICY.patient_burst
    assert most(Urgency.PATIENT, stands=True, rate=500.0) == 4_000
    assert most(Urgency.PATIENT, stands=True, rate=0.0) == 128


def test_a_line_stands_by_what_has_begun_beside_it_and_not_by_time() -> None:
    assert not is_standing(Urgency.QUICK, 10 * 128, 128, POLICY)
    assert is_standing(Urgency.QUICK, 10 * 128 + 1, 128, POLICY)
    assert not is_standing(Urgency.PATIENT, 16 * 128, 128, POLICY)
    assert is_standing(Urgency.PATIENT, 16 * 128 + 1, 128, POLICY)


def test_what_small_parties_leave_is_shared_by_the_others() -> None:
    policy = replace(POLICY, shared=1.0)
    assert equal_part([100.0, 900.0], 400.0, policy) == 300.0
    assert equal_part([100.0, 150.0, 900.0, 900.0], 650.0, policy) == 200.0
    assert equal_part([900.0] * 4, 400.0, policy) == 100.0
    assert equal_part([100.0, 100.0], 400.0, policy) == math.inf
    assert equal_part([], 0.0, policy) == math.inf


@given(requests=st.lists(st.floats(0.5, 1e6), min_size=1), part=st.floats(0.01, 1.0))
def test_all_that_is_within_the_equal_part_can_be_served(
    requests: list[float], part: float
) -> None:
    served = part * sum(requests)
    most = equal_part(requests, served, POLICY)
    modest = [count for count in requests if count < most]
    assert sum(modest) < served
    assert len(modest) < len(requests), (
        "the largest party is never modest while nothing is left over"
    )


def test_refused_callers_are_spread_over_the_seconds_that_serve_them() -> None:
    assert retry_seconds(0, 0, POLICY) == 1
    assert retry_seconds(400, 100, POLICY) == 4
    assert retry_seconds(9_000, 10, POLICY) == POLICY.most_retry_seconds
