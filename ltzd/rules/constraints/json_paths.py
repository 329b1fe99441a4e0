r"""Paths to a value in a JSON document: a small, strict part of JSONPath (RFC 9535).

    $.user.roles[0].name      $['a name with spaces'][2]

Steps are `.name`, `[0]` and `['any name']`, where `\'` and `\\` stand for themselves. A path names
at most one value: there are no wildcards, filters, slices or negative indexes. A JSON null and a
missing value are both None, since a purchase constraint does not distinguish them.
"""

import re
from decimal import Decimal
from typing import TypeAlias

Json: TypeAlias = "bool | int | Decimal | str | list[Json] | dict[str, Json] | None"
"""Numbers are exact: a decoder must read fractions as Decimal, never as float."""
JsonPath = tuple[str | int, ...]

MOST_CHARACTERS = 500
MOST_STEPS = 32

_STEP = re.compile(
    r"\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|\[(?P<index>0|[1-9][0-9]{0,8})\]"
    r"|\['(?P<quoted>(?:[^'\\]|\\['\\])*)'\]"
)
_ESCAPE = re.compile(r"\\(.)")


def parse_path(text: str) -> JsonPath:
    """Raises ValueError with the reason."""
    if not text.startswith("$"):
        raise ValueError("must begin with $")
    if len(text) > MOST_CHARACTERS or not text.isprintable():
        raise ValueError(f"must be at most {MOST_CHARACTERS} characters that can be printed")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise ValueError(f"makes no sense after {text[:at]}: give .name, [0] or ['any name']")
        steps.append(_unquoted(step))
        at = step.end()
    if len(steps) > MOST_STEPS:
        raise ValueError(f"must have at most {MOST_STEPS} steps")
    return tuple(steps)


def value_at(path: JsonPath, document: Json) -> Json:
    """Return None also if the path leads to no value."""
    value = document
    for step in path:
        match value, step:
            case dict(), str():
                value = value.get(step)
            case list(), int() if step < len(value):
                value = value[step]
            case _:
                return None
    return value


def _unquoted(step: re.Match[str]) -> str | int:
    if step["index"] is not None:
        return int(step["index"])
    return step["name"] or _ESCAPE.sub(r"\1", step["quoted"])
