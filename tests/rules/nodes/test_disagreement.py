"""Which nodes a majority contradicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.nodes.disagreement import contradicted, dissenters, prevailing


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


@given(st.lists(st.integers(0, 3), max_size=9))
def test_a_node_in_the_majority_is_never_named(answers: list[int]) -> None:
    wrong = dissenters(answers)
    for position, answer in enumerate(answers):
        if 2 * answers.count(answer) > len(answers):
            assert position not in wrong
        elif wrong or len(set(answers)) > 1:
            assert position in wrong


@pytest.mark.parametrize(
    ("answers", "expected"),
    [([5], 5), ([0, 5], 5), ([5, 0], 5), ([0, 5, 5], 5), ([5, 9, 5], 5), ([0, 5, 9], 5)],
)
def test_the_middle_of_three_answers_prevails_and_the_more_lenient_of_two(
    answers: list[int], expected: int
) -> None:
    assert prevailing(answers, lambda answer: answer) == expected


@given(st.integers(), st.integers(), st.integers())
def test_no_single_node_of_three_restricts_or_permits(first: int, second: int, lie: int) -> None:
    answer = prevailing([lie, first, second], lambda answer: answer)
    assert min(first, second) <= answer <= max(first, second)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([5], []),
        ([5, 5], []),
        ([0, 5], [0, 1]),
        ([0, 5, 5], [0]),
        ([5, 0, 5], [1]),
        ([0, 5, 9], [0, 1, 2]),
        ([0, 5, None], []),
    ],
)
def test_a_node_is_outvoted_only_by_all_others(
    answers: list[int | None], expected: list[int]
) -> None:
    """An answer of None is contradicted by no other, as that of a node at another block."""

    def contradict(first: int | None, second: int | None) -> bool:
        return None not in (first, second) and first != second

    assert contradicted(answers, contradict) == expected
