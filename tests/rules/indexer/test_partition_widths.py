"""Widths of partitions follow the size of the partition before."""

from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.indexer.partition_widths import (
    LEAST_WIDTH,
    MOST_WIDTH,
    TARGET_BYTES,
    USUAL_WIDTH,
    next_width,
    upper_bound,
)

BLOCKS = st.integers(1, 2**40)
SIZES = st.integers(1, 2**45)


@given(BLOCKS, SIZES)
def test_a_partition_is_expected_below_the_target_unless_it_is_of_the_least_width(
    blocks: int, size: int
) -> None:
    width = next_width(blocks, size)

    assert width & (width - 1) == 0
    assert LEAST_WIDTH <= width <= MOST_WIDTH
    assert width == LEAST_WIDTH or width * size <= blocks * TARGET_BYTES
    is_clamped = width in (MOST_WIDTH, LEAST_WIDTH)
    assert is_clamped or 2 * width * size > blocks * TARGET_BYTES


def test_a_partition_after_an_empty_one_has_the_usual_width() -> None:
    assert next_width(0, 0) == next_width(10**9, 0) == USUAL_WIDTH


@given(st.integers(0, 2**50), st.sampled_from([LEAST_WIDTH, USUAL_WIDTH, MOST_WIDTH]))
def test_the_bound_is_the_next_multiple_of_the_width(last: int, width: int) -> None:
    bound = upper_bound(last, width)

    assert last < bound <= last + width
    assert bound % width == 0
