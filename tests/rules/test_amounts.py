"""Amounts of LTZ keep every digit, from text to units and back."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.amounts import ltz_of, units_of


@given(st.integers(0, 2**256 - 1))
def test_a_shown_amount_is_read_as_the_same_amount(units: int) -> None:
    assert units_of(format(ltz_of(units), "f")) == units


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("0", 0),
        ("12", 12 * 10**18),
        ("0.000000000000000001", 1),
        ("1.50", 15 * 10**17),
        ("1." + "0" * 30, 10**18),
        ("79228162514.264337593543950335", 2**96 - 1),
    ],
)
def test_decimals_count(text: str, units: int) -> None:
    assert units_of(text) == units


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        "1e3",
        "1,5",
        ".5",
        "5.",
        " 1",
        "1\n",
        "NaN",
        "0x1",
        "\u0661",
        "1_000",
        "9" * 200,
    ],
)
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be an amount of LTZ in digits"):
        units_of(text)


def test_nothing_is_rounded_away() -> None:
    with pytest.raises(ValueError, match="at most 18 decimals"):
        units_of("1.0000000000000000001")
    assert ltz_of(2**96 - 1) == Decimal("79228162514.264337593543950335")
    assert ltz_of(100 * 10**18) == 100
