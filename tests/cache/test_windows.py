"""Names of windows: what a caller puts into a part never reaches another's counter."""

from hypothesis import given
from hypothesis import strategies as st

from ltzd.cache.windows import window_name

parts = st.lists(
    st.one_of(st.text("ab|%7c#25", max_size=6), st.text(st.characters(), max_size=300)), max_size=3
)


@given(first=parts, second=parts)
def test_different_parts_have_different_names(first: list[str], second: list[str]) -> None:
    lowered = [part.lower() for part in first] == [part.lower() for part in second]
    assert (window_name("a", 60, first) == window_name("a", 60, second)) is lowered


def test_limits_and_lengths_have_their_own_names() -> None:
    names = {window_name(limit, seconds, ["x"]) for limit in "ab" for seconds in (60, 3600)}
    assert len(names) == 4


def test_case_makes_no_difference() -> None:
    assert window_name("a", 60, ["0xABC", "Ada@X.example"]) == b"a|60|0xabc|ada@x.example"


@given(parts=parts)
def test_a_name_is_short_whatever_the_caller_sends(parts: list[str]) -> None:
    assert len(window_name("events", 60, parts)) <= 200
