"""Figures add up, amounts keep every digit, and differences of references are all found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.books import Figures, IndexedLtz, reference_differences, whole_ltz
from ltzd.values import LTZ, Address, Hash32

seqs = st.sets(st.one_of(st.integers(0, 1_000), st.integers(0, 2**64 - 1)))


def words(of: set[int]) -> dict[int, int]:
    words: dict[int, int] = {}
    for seq in of:
        words[seq // 256] = words.get(seq // 256, 0) | 1 << seq % 256
    return words


@given(seqs, seqs)
def test_references_that_only_one_side_has_are_found(chain: set[int], index: set[int]) -> None:
    assert reference_differences(words(chain), words(index)) == (
        sorted(chain - index),
        sorted(index - chain),
    )


@given(seqs, st.integers(0, 10_000))
def test_every_word_that_may_hold_a_reference_is_read(used: set[int], next_seq: int) -> None:
    indexed = IndexedLtz(1, Hash32(b""), Address(b""), 1, 1, Hash32(b""), 0, next_seq, words(used))
    requested = set(indexed.words())
    assert {seq // 256 for seq in used} <= requested
    assert set(range(next_seq // 256 + 2)) <= requested


@given(st.integers(0, 2**256 - 1))
def test_an_amount_keeps_every_digit(units: int) -> None:
    numerator, denominator = whole_ltz(units).as_integer_ratio()
    assert numerator * LTZ == units * denominator
    assert isinstance(whole_ltz(units), int) == (units % LTZ == 0)


@pytest.mark.parametrize(
    ("units", "shown"),
    [(0, "0"), (LTZ, "1"), (1, "1E-18"), (15 * LTZ // 10, "1.5")],
)
def test_an_amount_is_shown_without_trailing_zeros(units: int, shown: str) -> None:
    assert str(whole_ltz(units)) == shown


def test_the_total_is_the_sum_of_the_figures_and_zero_for_none() -> None:
    first, second = (
        Figures(answered=1, bought_ltz=10, on_chain_units=7),
        Figures(answered=2, failed=3),
    )
    assert Figures.total([first, second]) == Figures(
        answered=3, bought_ltz=10, failed=3, on_chain_units=7
    )
    assert Figures.total([]) == Figures()
