"""Ten attempts over three days, Retry-After, and the concurrency of each endpoint."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.webhooks import (
    ATTEMPTS,
    FEW_SLOTS,
    LONGEST_REST,
    MOST_SLOTS,
    QUICK,
    DeliverySlots,
    DeliveryVerdict,
    next_attempt,
    retry_after,
    verdict_of,
)

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
DAY = timedelta(hours=24)

chances = st.floats(0, 1)


def test_there_are_ten_attempts_over_three_days() -> None:
    at, times = NOW, [NOW]
    while (due := next_attempt(len(times), at, 0, None)) is not None:
        times.append(at := due)

    assert [later - earlier for earlier, later in pairwise(times)] == [
        timedelta(seconds=5),
        timedelta(minutes=5),
        timedelta(minutes=30),
        *(timedelta(hours=hours) for hours in (2, 5, 10, 14, 20, 24)),
    ]
    assert len(times) == ATTEMPTS == 10


@given(st.integers(1, 9), chances)
def test_jitter_only_lengthens_a_pause_and_by_a_tenth_at_most(attempts: int, chance: float) -> None:
    bare, due = next_attempt(attempts, NOW, 0, None), next_attempt(attempts, NOW, chance, None)

    assert bare is not None
    assert due is not None
    assert bare <= due <= bare + (bare - NOW) / 10 + timedelta(microseconds=1)


@given(st.integers(1, 9), chances, st.timedeltas(timedelta(0), DAY))
def test_retry_after_lengthens_a_pause_and_never_shortens_it(
    attempts: int, chance: float, asked_for: timedelta
) -> None:
    due = next_attempt(attempts, NOW, chance, asked_for)
    without = next_attempt(attempts, NOW, chance, None)

    assert without is not None
    assert due == max(without, NOW + asked_for)


@pytest.mark.parametrize("asked_for", [None, timedelta(0), DAY])
def test_the_last_attempt_is_not_repeated(asked_for: timedelta | None) -> None:
    assert next_attempt(ATTEMPTS, NOW, 0, asked_for) is None
    assert next_attempt(ATTEMPTS + 1, NOW, 0, asked_for) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 7 ", 7),
        ("86400", 86_400),
        ("86401", 86_400),
        ("9" * 5_000, 86_400),
        (format_datetime(NOW + timedelta(minutes=2), usegmt=True), 120),
        (format_datetime(NOW + timedelta(days=9), usegmt=True), 86_400),
        (format_datetime(NOW - timedelta(days=9), usegmt=True), 0),
        ("Sat, 01 Mar 2025 12:01:00 -0000", 60),
        ("Saturday, 01-Mar-25 12:01:00 GMT", 60),
    ],
)
def test_retry_after_is_in_seconds_or_a_date(text: str, seconds: int) -> None:
    assert retry_after(text, NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", [None, "", "soon", "-5", "1.5", "1e3", "²", "٣", "Sat, 99 Mar 2025 12:01:00 GMT", "\0"]
)
def test_a_meaningless_retry_after_is_ignored(text: str | None) -> None:
    assert retry_after(text, NOW) is None


@given(st.text())
def test_no_header_breaks_the_schedule(text: str) -> None:
    asked_for = retry_after(text, NOW)

    assert asked_for is None or timedelta(0) <= asked_for <= DAY


def test_only_a_2xx_is_a_delivery_and_only_410_closes_the_endpoint() -> None:
    verdicts = {status: verdict_of(status) for status in range(100, 600)}

    assert [
        status for status, verdict in verdicts.items() if verdict is DeliveryVerdict.DELIVERED
    ] == list(range(200, 300))
    assert [status for status, verdict in verdicts.items() if verdict is DeliveryVerdict.GONE] == [
        410
    ]


def test_a_failure_leaves_one_slot_and_successes_double_the_slots_up_to_four() -> None:
    slots = DeliverySlots()
    assert [slots.free(under_way, NOW) for under_way in (0, 3, 4, 5)] == [4, 1, 0, 0]

    slots = slots.after_failure(500, None, NOW)
    limits = [slots.limit]
    for _ in range(4):
        slots = slots.after_success(QUICK * 2)
        limits.append(slots.limit)

    assert limits == [1, 2, 4, 4, 4]
    assert slots == DeliverySlots()


def test_each_quick_answer_adds_a_slot_and_a_slow_one_halves_them() -> None:
    slots = DeliverySlots()
    for _ in range(MOST_SLOTS):
        slots = slots.after_success(QUICK)
    assert slots.limit == MOST_SLOTS
    assert DeliverySlots().after_success(QUICK).limit == FEW_SLOTS + 1

    limits = []
    for _ in range(4):
        slots = slots.after_success(QUICK + timedelta(milliseconds=1))
        limits.append(slots.limit)
    assert limits == [16, 8, 4, 4]
    assert DeliverySlots(MOST_SLOTS).after_failure(500, None, NOW).limit == 1


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_endpoint_rests_as_long_as_it_asks_within_bounds(status: int) -> None:
    minute = timedelta(minutes=1)
    resting = DeliverySlots().after_failure(status, minute, NOW)
    assert resting.free(0, NOW + minute - timedelta(seconds=1)) == 0
    assert resting.free(0, NOW + minute) == 1
    assert resting.after_success(QUICK).free(0, NOW) == 2

    long = DeliverySlots().after_failure(status, DAY, NOW)
    assert long.free(0, NOW + LONGEST_REST) == 1, (
        "the endpoint's other webhooks would wait for a day"
    )


@pytest.mark.parametrize(("status", "asked_for"), [(500, DAY), (None, None), (429, None)])
def test_other_failures_need_no_rest(status: int | None, asked_for: timedelta | None) -> None:
    assert DeliverySlots().after_failure(status, asked_for, NOW).free(0, NOW) == 1


def test_the_failure_of_an_attempt_in_flight_does_not_end_a_rest() -> None:
    resting = DeliverySlots().after_failure(429, LONGEST_REST, NOW)

    assert resting.after_failure(500, None, NOW).free(0, NOW) == 0
