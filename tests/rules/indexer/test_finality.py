"""A height is final if two nodes say so, or the only one, or one and ltzd's own rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.indexer.finality import final_height, is_plausible


@pytest.mark.parametrize(
    ("claims", "by_own_rule", "final"),
    [
        ([None], 5, None),
        ([], 5, None),
        ([50], None, 50),
        ([50, 40], None, 40),
        ([50, 40], 45, 45),
        ([50, 40], 70, 50),
        ([900, 50, 48], 20, 50),
        ([900, 50, 48], 60, 60),
        ([50, None], None, None),
        ([50, None], 30, 30),
        ([50, None], 60, 50),
        ([None, None], 60, None),
        ([50, 0], 30, 30),
    ],
)
def test_claims_are_weighed(
    claims: list[int | None], by_own_rule: int | None, final: int | None
) -> None:
    assert final_height(claims, by_own_rule) == final


def test_a_node_cannot_finalize_above_its_own_head() -> None:
    assert is_plausible(10, 10)
    assert is_plausible(None, 10)
    assert not is_plausible(11, 10)


heights = st.none() | st.integers(0, 1_000)


@given(st.lists(heights, min_size=1, max_size=4), heights, st.integers(0, 10_000))
def test_one_liar_finalizes_nothing_that_the_others_or_the_own_rule_do_not(
    honest: list[int | None], by_own_rule: int | None, lie: int
) -> None:
    known = [claim for claim in [*honest, by_own_rule] if claim is not None]
    final = final_height([lie, *honest], by_own_rule)

    assert final is None or final <= max(known)


@given(st.lists(st.integers(0, 1_000), min_size=2, max_size=4), st.integers(0, 1_000))
def test_a_node_whose_finality_stands_still_holds_nothing_back(
    honest: list[int], by_own_rule: int
) -> None:
    final = final_height([0, *honest], by_own_rule)

    assert final is not None
    assert final >= min(*honest, *honest)
