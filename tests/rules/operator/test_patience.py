"""When rewards of a patient brand stop waiting: never beyond the bound, whatever the fees do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.operator.fees import GWEI
from ltzd.rules.operator.patience import LEAD_SECONDS, FeeWindow, Release, release

fees = st.integers(0, 500 * GWEI)
windows = st.builds(
    lambda recent, next_fee: FeeWindow(tuple(sorted(recent)), next_fee),
    st.lists(fees, max_size=40),
    fees,
)
patience = st.integers(0, 86_400)
CALM = FeeWindow(tuple(range(1, 101)), 1)


@given(patience, st.floats(0, 10**6), st.none() | windows)
def test_no_reward_waits_beyond_the_bound(
    seconds: int, waited: float, window: FeeWindow | None
) -> None:
    if waited >= seconds - LEAD_SECONDS:
        assert release(seconds, waited, window) is Release.BOUND


@given(st.floats(0, 10**6), st.none() | windows)
def test_without_patience_nothing_ever_waits(waited: float, window: FeeWindow | None) -> None:
    assert release(0, waited, window) is Release.BOUND


@given(patience, st.floats(0, 86_400), st.floats(0, 86_400), windows)
def test_a_wait_that_has_ended_does_not_begin_again_at_the_same_fees(
    seconds: int, waited: float, longer: float, window: FeeWindow
) -> None:
    if release(seconds, waited, window) is not None:
        assert release(seconds, waited + longer, window) is not None


@given(patience, st.floats(0, 86_400), windows, fees)
def test_what_is_good_enough_for_a_fee_is_good_enough_for_a_lower_one(
    seconds: int, waited: float, window: FeeWindow, lower: int
) -> None:
    cheaper = FeeWindow(window.recent, min(lower, window.next_base_fee))
    if release(seconds, waited, window) is not None:
        assert release(seconds, waited, cheaper) is not None


@given(patience, st.floats(max_value=-1e-6, allow_infinity=False), windows)
def test_a_clock_that_was_set_back_ends_the_wait(
    seconds: int, waited: float, window: FeeWindow
) -> None:
    assert release(seconds, waited, window) is Release.BOUND


@pytest.mark.parametrize(
    "window", [None, FeeWindow((), 5), FeeWindow((1, 2, 3), 5), FeeWindow((1,) * 15, 5)]
)
def test_without_known_fees_nothing_waits(window: FeeWindow | None) -> None:
    assert release(3_600, 0, window) is Release.UNKNOWN


@pytest.mark.parametrize(
    ("waited", "dearest"), [(0, 11), (900, 16), (1_800, 33), (2_700, 61), (3_594, 100)]
)
def test_ever_dearer_blocks_are_accepted(waited: float, dearest: int) -> None:
    accepted = [fee for fee in range(1, 102) if release(3_600, waited, FeeWindow(CALM.recent, fee))]
    assert max(accepted) == dearest


def test_fees_that_do_not_change_are_never_waited_for() -> None:
    assert release(3_600, 0, FeeWindow((GWEI,) * 20, GWEI)) is Release.CHEAP
