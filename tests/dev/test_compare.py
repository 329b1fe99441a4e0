"""`make bench-compare` names a change only if the rounds show it."""

import pytest

from benchmarks.harness.compare import verdict


@pytest.mark.parametrize(
    ("before", "after", "is_lower_better", "expected"),
    [
        ([1.0, 1.1, 1.2], [1.3, 1.4, 1.5], False, "better"),
        ([1.0, 1.1, 1.2], [1.3, 1.4, 1.5], True, "worse"),
        ([1.3, 1.4, 1.5], [1.0, 1.1, 1.2], False, "worse"),
        ([1.3, 1.4, 1.5], [1.0, 1.1, 1.2], True, "better"),
        ([1.0, 1.1, 1.25], [1.2, 1.4, 1.5], False, ""),
        ([1.00, 1.01], [1.02, 1.03], False, ""),
        ([1.0], [1.0], False, ""),
    ],
)
def test_rounds_that_overlap_or_hardly_differ_are_no_change(
    before: list[float], after: list[float], is_lower_better: bool, expected: str
) -> None:
    assert verdict(before, after, is_lower_better=is_lower_better) == expected
