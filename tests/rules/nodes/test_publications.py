"""Outcomes of one transaction at several nodes, merged into the outcome that counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.nodes.publications import PublishOutcome, merged

A, N, P = PublishOutcome.ACCEPTED, PublishOutcome.NONCE_TOO_LOW, PublishOutcome.UNDERPRICED
F, R, G = PublishOutcome.UNAFFORDABLE, PublishOutcome.REFUSED, PublishOutcome.REFUSED_FOR_GOOD
U, X = PublishOutcome.UNKNOWN, PublishOutcome.REFUSED_UNEXPLAINED


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([A], A),
        ([G], G),
        ([], U),
        ([A, G], A),
        ([A, U], A),
        ([A, N], A),
        ([N, G], N),
        ([N, U], N),
        ([N, P], N),
        ([P, G], P),
        ([P, U], P),
        ([G, U], U),
        ([R, U], U),
        ([R, G], R),
        ([F, G], F),
        ([F, R], F),
        ([X, G], X),
        ([X, R], R),
        ([X, U], U),
        ([X, A], A),
        ([X, X], X),
        ([G, G], G),
        ([G, G, U], U),
        ([G, G, A], A),
    ],
)
def test_the_outcome_that_counts(outcomes: list[PublishOutcome], expected: PublishOutcome) -> None:
    assert merged(outcomes) is expected
    assert merged(outcomes[::-1]) is expected


@given(st.lists(st.sampled_from(PublishOutcome), min_size=1), st.randoms())
def test_no_order_of_nodes_changes_the_outcome_and_some_node_gave_it(
    outcomes: list[PublishOutcome], chance: object
) -> None:
    shuffled = list(outcomes)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merged(shuffled) is merged(outcomes)
    assert merged(outcomes) in outcomes


@given(st.lists(st.sampled_from(PublishOutcome), min_size=1))
def test_bytes_are_refused_for_good_only_if_every_node_says_so(
    outcomes: list[PublishOutcome],
) -> None:
    assert (merged(outcomes) is G) == (set(outcomes) == {G})
    assert (merged(outcomes) is X) == (X in outcomes and set(outcomes) <= {G, X})
    assert (merged(outcomes) is A) == (A in outcomes)


@given(st.lists(st.sampled_from(PublishOutcome), min_size=1))
def test_a_silent_node_more_makes_nothing_more_certain(outcomes: list[PublishOutcome]) -> None:
    assert merged([*outcomes, U]) in {merged(outcomes), U}
