"""The time since the last commit tells that the indexer stands still."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.rules.indexer.standstill import (
    IndexProgress,
    StandstillPolicy,
    stands_still,
)

POLICY = StandstillPolicy(least_seconds=60.0, block_times=10.0)
AT_THE_HEAD = IndexProgress(100, 100, 61.0, None)


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (AT_THE_HEAD, False),
        (replace(AT_THE_HEAD, idle_seconds=86_400.0), False),
        (replace(AT_THE_HEAD, head_number=101), True),
        (replace(AT_THE_HEAD, head_number=101, idle_seconds=60.0), False),
        (replace(AT_THE_HEAD, block_seconds=2.0), True),
        (replace(AT_THE_HEAD, block_seconds=2.0, idle_seconds=59.0), False),
        (replace(AT_THE_HEAD, block_seconds=12.0, idle_seconds=119.0), False),
        (replace(AT_THE_HEAD, block_seconds=12.0, idle_seconds=121.0), True),
        (replace(AT_THE_HEAD, head_number=90, idle_seconds=1e6), False),
    ],
)
def test_a_chain_with_a_block_time_owes_blocks_and_another_one_those_below_its_head(
    progress: IndexProgress, expected: bool
) -> None:
    assert stands_still(progress, POLICY) is expected


@given(
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.one_of(st.none(), st.floats(0, 600)),
    st.floats(0, 10**6),
    st.floats(0, 10**6),
)
def test_an_indexer_that_stands_still_does_not_move_by_waiting(
    cursor: int, head: int, block_time: float | None, idle: float, more: float
) -> None:
    before = IndexProgress(cursor, head, idle, block_time)
    after = replace(before, idle_seconds=idle + more)
    assert stands_still(after, POLICY) or not stands_still(before, POLICY)


def test_the_lag_is_told_in_seconds_where_the_chain_has_a_block_time() -> None:
    progress = replace(AT_THE_HEAD, head_number=105, block_seconds=2.0)
    assert (progress.lag_blocks, progress.lag_seconds) == (5, 10.0)
    assert replace(progress, block_seconds=None).lag_seconds is None
