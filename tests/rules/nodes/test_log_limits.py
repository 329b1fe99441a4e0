"""Ranges of `eth_getLogs` follow the blocks and the results that a node allows."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ltzd.rules.nodes.log_limits import (
    LogLimits,
    after_logs,
    after_many_results,
    after_wide_range,
    log_limits,
)

BLOCKS = st.integers(1, 100_000)
FRESH = log_limits(2_000, 10_000, 100_000)


@st.composite
def learned(draw: st.DrawFn) -> LogLimits:
    limits = FRESH
    for kind, share, number in draw(
        st.lists(st.tuples(st.integers(0, 2), st.floats(0.01, 1.5), BLOCKS), max_size=40)
    ):
        blocks = max(1, int(limits.range_blocks * share))
        if kind == 0:
            limits = after_logs(limits, blocks, number)
        elif kind == 1:
            limits = after_wide_range(limits, blocks, number)
        else:
            limits = after_many_results(limits, blocks, None, number)
    return limits


def test_quiet_blocks_are_read_by_the_widest_range() -> None:
    assert FRESH.range_blocks == 2_000
    assert after_logs(FRESH, 2_000, 0).range_blocks == 2_000


def test_busy_blocks_are_read_by_ranges_that_hold_the_results_allowed() -> None:
    assert after_logs(FRESH, 100, 5_000).range_blocks == 200


def test_a_range_that_is_too_wide_is_halved() -> None:
    assert after_wide_range(FRESH, 2_000).range_blocks == 1_000


def test_the_range_that_the_node_names_is_taken() -> None:
    assert after_wide_range(FRESH, 2_000, 800).range_blocks == 800
    assert after_many_results(FRESH, 2_000, 867).range_blocks == 867


def test_the_number_of_results_that_the_node_names_is_kept_to() -> None:
    limits = after_many_results(FRESH, 2_000, None, 1_000)
    assert limits.range_blocks < 2_000
    assert after_logs(limits, 500, 1_000).range_blocks <= 500


def test_quiet_blocks_after_busy_ones_widen_the_range_slowly() -> None:
    limits = after_many_results(FRESH, 2_000, 1_000)
    widths = []
    for _ in range(12):
        limits = after_logs(limits, limits.range_blocks, 0)
        widths.append(limits.range_blocks)
    assert widths == sorted(widths)
    assert widths[0] < 1_200
    assert widths[-1] == 2_000


@given(learned(), BLOCKS, st.none() | BLOCKS, st.none() | BLOCKS)
def test_after_any_refusal_the_next_range_is_strictly_smaller(
    limits: LogLimits, blocks: int, named_blocks: int | None, named_results: int | None
) -> None:
    wide = after_wide_range(limits, blocks, named_blocks)
    assert 1 <= wide.range_blocks < blocks or blocks == 1
    many = after_many_results(limits, blocks, named_blocks, named_results)
    assert 1 <= many.range_blocks < blocks or blocks == 1
    assert many.range_blocks <= limits.range_blocks


@settings(deadline=None)
@given(
    st.integers(20, 3_000),
    st.integers(60, 20_000),
    st.lists(st.integers(0, 60), min_size=1, max_size=5),
)
def test_a_chain_is_read_with_few_refusals(
    most_blocks: int, most_results: int, density: list[int]
) -> None:
    """A node with both limits, and stretches of 8,000 blocks of a constant density each."""
    limits, block, answers, refusals = FRESH, 0, 0, 0
    while block < 8_000 * len(density):
        here = density[block // 8_000]
        blocks = limits.range_blocks
        if blocks > most_blocks:
            refusals += 1
            limits = after_wide_range(limits, blocks)
        elif blocks * here > most_results:
            refusals += 1
            limits = after_many_results(limits, blocks)
        else:
            answers += 1
            block += blocks
            limits = after_logs(limits, blocks, blocks * here)
    assert refusals <= answers / 8 + 12 * len(density)
