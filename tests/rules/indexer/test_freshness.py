"""A fresh index is close to the head and is written to; a stopped one is never fresh."""

import pytest

from ltzd.rules.indexer.freshness import is_fresh
from ltzd.rules.indexer.standstill import IndexProgress

CURSOR = 1_000


def fresh(lag: int, idle: float, block_seconds: float | None, *, is_stopped: bool = False) -> bool:
    progress = IndexProgress(CURSOR, CURSOR + lag, idle, block_seconds)
    return is_fresh(progress, is_stopped=is_stopped)


@pytest.mark.parametrize(
    ("block_seconds", "lag", "expected"),
    [
        (12.0, 2, True),
        (12.0, 3, False),
        (2.0, 5, True),
        (2.0, 6, False),
        (0.25, 40, True),
        (0.25, 41, False),
        (None, 2, True),
        (None, 3, False),
    ],
)
def test_an_index_some_seconds_or_two_blocks_behind_is_fresh(
    block_seconds: float | None, lag: int, *, expected: bool
) -> None:
    assert fresh(lag, 0.0, block_seconds) is expected


@pytest.mark.parametrize(
    ("block_seconds", "idle", "expected"),
    [
        (12.0, 36.0, True),
        (12.0, 37.0, False),
        (2.0, 10.0, True),
        (2.0, 11.0, False),
        (None, 86_400.0, True),
    ],
)
def test_an_index_that_is_not_written_to_is_old_unless_the_chain_owes_no_block(
    block_seconds: float | None, idle: float, *, expected: bool
) -> None:
    assert fresh(0, idle, block_seconds) is expected


def test_on_a_chain_without_block_time_an_idle_index_is_old_if_blocks_are_missing() -> None:
    assert not fresh(1, 11.0, None)


def test_a_stopped_index_is_not_fresh() -> None:
    assert not fresh(0, 0.0, 2.0, is_stopped=True)
