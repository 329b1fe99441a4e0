"""Partitions of events follow one another, hold what waits, and grow towards a size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.rules.event_handler.event_partitions import (
    AHEAD,
    LEAST_WIDTH,
    MOST_MOVED_ROWS,
    MOST_WIDTH,
    TARGET_BYTES,
    USUAL_WIDTH,
    Bounds,
    Newest,
    Waiting,
    is_due,
    next_bounds,
    next_width,
)

NOW = 1_700_000_000 // USUAL_WIDTH * USUAL_WIDTH + 1_000
NEW_DATABASE = Newest(None, 0, 0)


def test_the_first_partition_of_a_new_database_begins_at_a_round_time_before_now() -> None:
    assert next_bounds(NEW_DATABASE, None, NOW) == Bounds(NOW - 1_000, NOW - 1_000 + USUAL_WIDTH)


def test_a_partition_begins_where_the_one_before_ends() -> None:
    newest = Newest(NOW - 1_000, NOW - 1_000 + USUAL_WIDTH, 0)
    assert not is_due(newest, NOW)
    assert not is_due(newest, newest.upper - AHEAD)
    assert is_due(newest, newest.upper - AHEAD + 1)
    assert next_bounds(newest, None, NOW) == Bounds(newest.upper, newest.upper + USUAL_WIDTH)


def test_after_a_conversion_the_next_partition_begins_at_the_old_tables_bound() -> None:
    old = Newest(None, NOW // LEAST_WIDTH * LEAST_WIDTH + 9 * LEAST_WIDTH, 2**40)
    bounds = next_bounds(old, None, NOW)
    assert bounds == Bounds(old.upper, NOW // USUAL_WIDTH * USUAL_WIDTH + USUAL_WIDTH)


def test_rows_that_wait_belong_to_the_next_partition_unless_they_are_many() -> None:
    waiting = Waiting(MOST_MOVED_ROWS, NOW - 3 * USUAL_WIDTH, NOW + 5)
    bounds = next_bounds(NEW_DATABASE, waiting, NOW)
    assert NOW - 3 * USUAL_WIDTH - LEAST_WIDTH < bounds.lower <= waiting.first < NOW < bounds.upper

    many = replace(waiting, rows=MOST_MOVED_ROWS + 1)
    assert waiting.last < next_bounds(NEW_DATABASE, many, NOW).lower < NOW + 2 * LEAST_WIDTH
    for earlier in (NOW - USUAL_WIDTH, NOW - LEAST_WIDTH):
        lower = next_bounds(NEW_DATABASE, replace(many, last=earlier), NOW).lower
        assert NOW < lower < NOW + 2 * LEAST_WIDTH, "events of now go to the default partition"


@pytest.mark.parametrize(
    ("size", "width"),
    [
        (0, USUAL_WIDTH),
        (1, MOST_WIDTH),
        (TARGET_BYTES, USUAL_WIDTH),
        (2 * TARGET_BYTES, USUAL_WIDTH // 2),
        (TARGET_BYTES * 2**20, LEAST_WIDTH),
    ],
)
def test_a_width_aims_at_a_size(size: int, width: int) -> None:
    assert next_width(Newest(NOW, NOW + USUAL_WIDTH, size)) == width


@given(
    st.integers(0, NOW + AHEAD),
    st.integers(1, 2**40),
    st.none() | st.tuples(st.integers(1, 2 * MOST_MOVED_ROWS), st.integers(0, 2**22)),
    st.booleans(),
)
def test_a_partition_never_overlaps_the_one_before_and_reaches_beyond_now(
    upper: int, size: int, rows: tuple[int, int] | None, is_first: bool
) -> None:
    upper = upper // LEAST_WIDTH * LEAST_WIDTH
    newest = Newest(None if is_first else max(0, upper - USUAL_WIDTH), upper, size)
    waiting = None if rows is None else Waiting(rows[0], upper, upper + rows[1])
    bounds = next_bounds(newest, waiting, NOW)
    assert upper <= bounds.lower < bounds.upper
    assert bounds.upper > NOW
