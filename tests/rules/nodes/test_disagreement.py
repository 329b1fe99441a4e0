"""Which nodes a majority contradicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.nodes.disagreement import agreed, dissenters


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("", []),
        ("a", []),
        ("aaa", []),
        ("aab", [2]),
        ("ab", [0, 1]),
        ("abc", [0, 1, 2]),
        ("aabb", [0, 1, 2, 3]),
        ("abaac", [1, 4]),
    ],
)
def test_a_majority_names_those_who_differ(answers: str, expected: list[int]) -> None:
    assert dissenters(answers) == expected


@pytest.mark.parametrize(
    ("answers", "before", "expected"),
    [
        ("", None, None),
        ("a", None, "a"),
        ("ab", "a", "a"),
        ("ab", "b", "b"),
        ("abb", "a", "b"),
        ("b", "a", "b"),
    ],
)
def test_the_most_frequent_answer_counts_and_among_equals_the_last_agreement(
    answers: str, before: str | None, expected: str | None
) -> None:
    assert agreed(answers, before) == expected


@given(st.lists(st.integers(0, 3), max_size=9))
def test_a_node_in_the_majority_is_never_named(answers: list[int]) -> None:
    wrong = dissenters(answers)
    for position, answer in enumerate(answers):
        if 2 * answers.count(answer) > len(answers):
            assert position not in wrong
        elif wrong or len(set(answers)) > 1:
            assert position in wrong
