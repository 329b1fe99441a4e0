"""JSON paths: their grammar, and the value that a path leads to."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.constraints.json_paths import MOST_STEPS, Json, JsonPath, parse_path, value_at

NAMES = st.sampled_from(["a", "b", "_x9", "", "a b", "it's", "back\\slash", "]['", "$", "0", "é"])
STEPS = st.lists(NAMES | st.integers(0, 3), max_size=5).map(tuple)
LEAVES = st.none() | st.booleans() | st.integers() | st.just(Decimal("1.5")) | st.text(max_size=3)
DOCUMENTS: st.SearchStrategy[Json] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def written(path: JsonPath) -> str:
    """Returns the path as a person could write it, with a dot where a dot is allowed."""
    text = "$"
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isascii() and step.isidentifier():
            text += f".{step}"
        else:
            text += "['" + step.replace("\\", "\\\\").replace("'", "\\'") + "']"
    return text


def every_place(document: Json, path: JsonPath = ()) -> dict[JsonPath, Json]:
    """Returns all values of a document by their paths."""
    places = {path: document}
    if isinstance(document, dict):
        for name, value in document.items():
            places |= every_place(value, (*path, name))
    if isinstance(document, list):
        for index, value in enumerate(document):
            places |= every_place(value, (*path, index))
    return places


@given(STEPS)
def test_a_written_path_is_read_as_its_steps(path: JsonPath) -> None:
    assert parse_path(written(path)) == path


@given(DOCUMENTS)
def test_every_value_is_found_by_its_path(document: Json) -> None:
    for path, value in every_place(document).items():
        assert value_at(parse_path(written(path)), document) is value


@given(DOCUMENTS, STEPS)
def test_a_path_to_nothing_finds_nothing(document: Json, path: JsonPath) -> None:
    assert value_at(path, document) == every_place(document).get(path)


def test_text_cannot_be_indexed_and_negative_indexes_are_refused() -> None:
    assert value_at(parse_path("$[0]"), "abc") is None
    assert value_at(parse_path("$.a"), ["a"]) is None
    assert value_at(parse_path("$['0']"), ["a"]) is None
    assert value_at(parse_path("$[0]"), {"0": "a"}) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must begin with $"),
        ("allowed", "must begin with $"),
        (" $.a", "must begin with $"),
        ("$.", "makes no sense after $:"),
        ("$a", "makes no sense after $:"),
        ("$..a", "makes no sense after $:"),
        ("$.a.", "makes no sense after $.a:"),
        ("$.a b", "makes no sense after $.a:"),
        ("$.a ", "makes no sense after $.a:"),
        ("$.*", "makes no sense after $:"),
        ("$.9a", "makes no sense after $:"),
        ("$.a-b", "makes no sense after $.a:"),
        ("$.é", "makes no sense after $:"),
        ("$[*]", "makes no sense after $:"),
        ("$[-1]", "makes no sense after $:"),
        ("$[01]", "makes no sense after $:"),
        ("$[1:2]", "makes no sense after $:"),
        ("$[?@.a]", "makes no sense after $:"),
        ("$[1234567890]", "makes no sense after $:"),
        ("$[\u0661]", "makes no sense after $:"),
        ("$[0", "makes no sense after $:"),
        ('$["a"]', "makes no sense after $:"),
        ("$['a'", "makes no sense after $:"),
        ("$['a\\n']", "makes no sense after $:"),
        ("$['it's']", "makes no sense after $:"),
        ("$.a\n", "must be at most 500 characters that can be printed"),
        ("$['\x00']", "must be at most 500 characters that can be printed"),
        ("$." + "a" * 499, "must be at most 500 characters that can be printed"),
        ("$" + ".a" * (MOST_STEPS + 1), "must have at most 32 steps"),
    ],
)
def test_a_malformed_path_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"^(must|makes) ") as caught:
        parse_path(text)

    assert str(caught.value).startswith(reason)


@given(st.text("$.[]'\\a0 -", max_size=30))
def test_any_text_is_a_path_or_refused_and_never_read_as_another_path(text: str) -> None:
    try:
        path = parse_path(text)
    except ValueError:
        return
    assert parse_path(written(path)) == path
    # Only a quoted name that could follow a dot has two spellings.
    assert len(written(path)) <= len(text)
