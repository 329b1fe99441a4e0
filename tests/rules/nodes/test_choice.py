"""The choice of a node, over every mix of nodes that hypothesis can think of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.nodes.choice import (
    ChoicePolicy,
    NodeObservation,
    credible_height,
    is_behind,
    ranking,
)

POLICY = ChoicePolicy()

HEIGHTS = st.none() | st.integers(0, 10**9)
NODES = st.lists(
    st.builds(
        NodeObservation,
        height=HEIGHTS,
        latency_seconds=st.none() | st.floats(0, 10),
        is_open=st.booleans(),
        is_distrusted=st.booleans(),
        is_limited=st.booleans(),
    ),
    min_size=1,
    max_size=6,
)
POSITIONS = st.none() | st.integers(0, 5)


def credible(nodes: list[NodeObservation]) -> int:
    heights = [n.height for n in nodes if n.height is not None and not n.is_distrusted]
    return credible_height(heights, POLICY.tolerance_blocks)


def is_good(node: NodeObservation, at_least: int) -> bool:
    behind = is_behind(node.height, at_least, POLICY.tolerance_blocks)
    return not (node.is_open or node.is_distrusted or behind or node.is_limited)


@given(NODES, POSITIONS)
def test_every_node_is_asked_in_the_end(nodes: list[NodeObservation], in_use: int | None) -> None:
    assert sorted(ranking(nodes, in_use, POLICY)) == list(range(len(nodes)))


@given(NODES, POSITIONS)
def test_no_bad_node_comes_before_a_good_one(
    nodes: list[NodeObservation], in_use: int | None
) -> None:
    order = [
        is_good(nodes[position], credible(nodes)) for position in ranking(nodes, in_use, POLICY)
    ]
    assert order == sorted(order, reverse=True)


@given(NODES, POSITIONS)
def test_a_distrusted_node_comes_after_every_other(
    nodes: list[NodeObservation], in_use: int | None
) -> None:
    order = [nodes[position].is_distrusted for position in ranking(nodes, in_use, POLICY)]
    assert order == sorted(order)


@given(NODES)
def test_the_choice_is_stable(nodes: list[NodeObservation]) -> None:
    first = ranking(nodes, None, POLICY)[0]
    assert ranking(nodes, first, POLICY)[0] == first


@given(
    st.lists(st.integers(1000, 1001), min_size=2, max_size=5),
    st.integers(1010, 10**12),
    st.lists(st.floats(0, 5), min_size=6, max_size=6),
)
def test_one_node_far_ahead_of_two_or_more_is_not_believed(
    honest: list[int], lie: int, latencies: list[float]
) -> None:
    nodes = [
        NodeObservation(height, latency)
        for height, latency in zip([*honest, lie], latencies, strict=False)
    ]
    assert all(is_good(node, credible(nodes)) for node in nodes[:-1])


@given(st.integers(0, 10**6), st.integers(3, 10**6))
def test_a_node_that_lags_is_asked_after_one_that_does_not(height: int, lag: int) -> None:
    nodes = [NodeObservation(height, 0.001), NodeObservation(height + lag, 5.0)]
    assert ranking(nodes, 0, POLICY) == [1, 0]


@pytest.mark.parametrize(
    ("latencies", "expected"),
    [
        ((0.010, 0.005), 0),  # The node in use is a little slower, and stays.
        ((0.500, 0.005), 1),
        ((None, 0.005), 0),
    ],
)
def test_the_node_in_use_stays_unless_another_is_much_faster(
    latencies: tuple[float | None, float | None], expected: int
) -> None:
    nodes = [NodeObservation(10, latency) for latency in latencies]
    assert ranking(nodes, 0, POLICY)[0] == expected


def test_without_any_height_every_node_may_be_asked() -> None:
    assert credible_height([], 2) == 0
    assert sorted(ranking([NodeObservation(), NodeObservation()], None, POLICY)) == [0, 1]
