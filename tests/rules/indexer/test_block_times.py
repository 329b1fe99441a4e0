"""The block time is measured from heads; chains without one are polled as before."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.indexer.block_times import BlockTimes, poll_seconds, silence_seconds


def measured(seconds: float, blocks: int = 40, start: int = 1_700_000_000) -> BlockTimes:
    times = BlockTimes()
    for number in range(blocks):
        times = times.with_head(number, int(start + number * seconds), number * seconds)
    return times


@pytest.mark.parametrize("seconds", [0.25, 0.4, 1, 2, 3, 12])
def test_a_regular_chain_has_a_block_time(seconds: float) -> None:
    assert measured(seconds).seconds() == pytest.approx(seconds, rel=0.15)


def test_blocks_of_one_second_are_measured_by_their_arrival() -> None:
    times = BlockTimes()
    for number in range(8):
        times = times.with_head(number, 1_700_000_000, number * 0.01)
    assert times.seconds() == pytest.approx(0.01)


def test_a_chain_that_mines_on_demand_has_none() -> None:
    times, at = BlockTimes(), 0
    for number, gap in enumerate([0, 1, 1, 300, 1, 2, 900, 1, 1, 1]):
        at += gap
        times = times.with_head(number, at, float(at))
    assert times.seconds() is None


def test_few_blocks_tell_nothing() -> None:
    assert measured(12, blocks=4).seconds() is None


def test_missed_slots_change_little() -> None:
    times = BlockTimes()
    for number, slot in enumerate(slot for slot in range(40) if slot not in {7, 20, 21}):
        times = times.with_head(number, 12 * slot, 12.0 * slot)
    assert times.seconds() == pytest.approx(12, rel=0.15)


def test_heads_that_polling_skipped_count() -> None:
    times = BlockTimes()
    for number in range(0, 100, 8):
        times = times.with_head(number, number // 4, number / 4)
    assert times.seconds() == pytest.approx(0.25, rel=0.15)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=60))
def test_any_heads_give_a_block_time_or_none(heads: list[tuple[int, int]]) -> None:
    times = BlockTimes()
    for at, (number, timestamp) in enumerate(heads):
        times = times.with_head(number, timestamp, float(at))
        seconds = times.seconds()
        assert seconds is None or seconds > 0
        assert all(earlier.number < later.number for earlier, later in pairwise(times.heads))


def test_polls_follow_the_block_time_between_both_bounds() -> None:
    assert poll_seconds(None, 1, 2) == 1
    assert poll_seconds(0.25, 1, 2) == 1
    assert poll_seconds(3, 1, 2) == 1.5
    assert poll_seconds(12, 1, 2) == 2
    assert poll_seconds(12, 5, 2) == 5


def test_a_socket_is_silent_after_three_block_times() -> None:
    assert silence_seconds(2, 1) == 6
    assert silence_seconds(0.1, 1) == 1
    assert silence_seconds(None, 1) is None
