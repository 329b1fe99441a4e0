"""Learned sizes: strictly smaller after a refusal, near the node's true limit, little waste."""

from math import log2

from hypothesis import given, settings
from hypothesis import strategies as st

from ltzd.rules.nodes.limits import (
    MOST_PATIENCE,
    PATIENCE,
    Limit,
    after_refusal,
    after_success,
    limit_from,
)

SIZES = st.integers(1, 5_000)


@st.composite
def learned(draw: st.DrawFn) -> Limit:
    """A limit after any history of successes and refusals."""
    most = draw(SIZES)
    limit = limit_from(draw(st.integers(1, most)), most)
    for is_refused, share, named in draw(
        st.lists(st.tuples(st.booleans(), st.floats(0.01, 2.0), st.none() | SIZES), max_size=60)
    ):
        size = max(1, int(limit.size * share))
        limit = after_refusal(limit, size, named) if is_refused else after_success(limit, size)
    return limit


def test_a_limit_begins_at_its_first_size() -> None:
    assert limit_from(100, 1_000).size == 100


def test_a_refusal_halves() -> None:
    assert after_refusal(limit_from(100, 1_000), 100).size == 50


def test_a_refusal_of_a_smaller_request_halves_that() -> None:
    assert after_refusal(limit_from(100), 7).size == 3


def test_the_size_that_a_node_names_is_taken() -> None:
    limit = after_refusal(limit_from(2_000), 2_000, named=800)
    for _ in range(PATIENCE - 1):
        limit = after_success(limit, limit.size)
        assert limit.size == 800


def test_a_named_size_that_is_no_smaller_is_ignored() -> None:
    assert after_refusal(limit_from(100), 60, named=60).size == 30
    assert after_refusal(limit_from(100), 60, named=0).size == 30


def test_refusals_of_requests_sent_together_halve_once() -> None:
    limit = limit_from(100)
    for _ in range(16):
        limit = after_refusal(limit, 100)
    assert limit.size == 50


def test_a_single_item_that_is_refused_teaches_nothing_about_sizes() -> None:
    limit = after_refusal(limit_from(1, 100), 1)
    assert limit.refused is None
    assert after_success(limit, 1).size > 1


def test_successes_of_smaller_requests_raise_nothing() -> None:
    assert after_success(limit_from(100, 1_000), 99) == limit_from(100, 1_000)


def test_growth_is_additive() -> None:
    sizes = []
    limit = limit_from(100, 1_000)
    for _ in range(4):
        limit = after_success(limit, limit.size)
        sizes.append(limit.size)
    assert sizes == [110, 120, 130, 140]


@given(learned(), SIZES, st.none() | SIZES)
def test_after_any_refusal_the_next_request_is_strictly_smaller(
    limit: Limit, size: int, named: int | None
) -> None:
    after = after_refusal(limit, size, named)
    assert after.size < size or size == 1
    assert 1 <= after.size <= limit.size


@given(learned(), SIZES)
def test_a_success_never_lowers_a_limit_nor_raises_it_above_its_most(
    limit: Limit, size: int
) -> None:
    after = after_success(limit, size)
    assert limit.size <= after.size <= max(limit.most, limit.size)
    assert after.patience <= MOST_PATIENCE


@given(learned(), SIZES, st.integers(1, PATIENCE - 1))
def test_a_size_that_was_refused_is_not_tried_again_at_once(
    limit: Limit, size: int, successes: int
) -> None:
    limit = after_refusal(limit, size)
    refused = limit.refused
    for _ in range(successes):
        limit = after_success(limit, limit.size)
        assert refused is None or limit.size < refused


@settings(deadline=None)
@given(st.integers(50, 5_000), SIZES, SIZES)
def test_with_a_true_limit_the_requests_stay_between_its_half_and_it(
    first: int, most: int, true_limit: int
) -> None:
    limit = limit_from(min(first, most), most)
    refusals, accepted = 0, []
    for _ in range(2_000):
        size = limit.size
        if size > true_limit:
            refusals += 1
            limit = after_refusal(limit, size)
            assert limit.size >= true_limit // 2
        else:
            accepted.append(size)
            limit = after_success(limit, size)
    begun = min(first, most)
    reached = next(
        (index for index, size in enumerate(accepted) if 2 * size >= min(true_limit, most)), None
    )
    assert reached is not None
    assert all(2 * size + 1 >= min(true_limit, most) for size in accepted[reached:])
    descent = max(0.0, log2(max(1, begun / true_limit))) + 1
    search = log2(max(1, begun // 10)) + 2
    attempts = log2(2_000 / PATIENCE) + 1
    assert refusals <= descent + search + attempts


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 1_000), st.integers(2, 1_000))
def test_a_limit_that_the_node_raises_is_found_again(low: int, high: int) -> None:
    limit = limit_from(1_000)
    for true_limit in (low, low + high):
        for _ in range(4_000):
            size = limit.size
            limit = (after_refusal if size > true_limit else after_success)(limit, size)
    assert 2 * limit.size + 1 >= min(low + high, 1_000)
