"""Reads TOML files of people, and finds the line of each fault.

The standard library's parser keeps no positions, so a light scan finds the lines. The scan knows
plain `key = value` lines and sections, but not inline tables and dotted keys.
"""

import re
import tomllib
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from pydantic_core import ErrorDetails

from ltzd.errors import FileRejected

FieldPath = tuple[str | int, ...]
"""The keys and indexes that lead to a value: ("events", 1, "reward")."""

UNKNOWN_PATH: FieldPath = ("?",)

_HEADER = re.compile(r"\s*(?P<open>\[\[?)\s*(?P<name>[A-Za-z0-9_.-]+)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*(?P<name>[A-Za-z0-9_-]+)\s*=")


class TomlFile:
    """Raises FileRejected if the text is not TOML."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._lines = dict(_lines(text))
        try:
            self.document: dict[str, object] = tomllib.loads(text, parse_float=Decimal)
        except tomllib.TOMLDecodeError as error:
            # Some faults, such as a repeated key on the last line, are found only at the end.
            end = f"at line {len(text.splitlines())}, the end"
            reason = str(error).replace("at end of document", end)
            raise FileRejected([f"{name}: no valid TOML: {reason}"]) from error
        except (ValueError, RecursionError) as error:
            # Python's own limits: the digits of a number, the depth of the stack.
            reason = "a number is too long, or lists are nested too deeply"
            raise FileRejected([f"{name}: no valid TOML: {reason}"]) from error

    def fault(self, path: FieldPath, reason: str) -> str:
        """A sentence with the file, the line if it is known, the field and the reason."""
        line = self._line_of(path)
        where = self.name if line is None else f"{self.name}:{line}"
        return f"{where}: {dotted(path)}: {reason}" if path else f"{where}: {reason}"

    def _line_of(self, path: FieldPath) -> int | None:
        """The line of the value, else of its section: a missing key has no line of its own."""
        for length in range(len(path), 0, -1):
            if (line := self._lines.get(path[:length])) is not None:
                return line
        return self._lines.get((*path[:1], 0))


def dotted(path: Iterable[str | int]) -> str:
    """`events[1].reward`"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


_WHOLE, _NUMBER, _LIST = "must be a whole number", "must be a number", "must be a list"
_REASONS: Final = {
    "missing": "is missing",
    "extra_forbidden": "unknown key",
    "value_error": "{error}",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "decimal_type": _NUMBER,
    "decimal_parsing": _NUMBER,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "model_type": "must be a section",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
}
"""By pydantic's error type. Braces take the rule's numbers from the error's context."""


def reason_of(error: ErrorDetails) -> str:
    """The reason of a pydantic error, in ltzd's words and without the value."""
    if (reason := _REASONS.get(error["type"])) is not None:
        return reason.format_map(error.get("ctx", {}))
    message = error["msg"].replace("Input should", "must").replace("String should", "must")
    return message[0].lower() + message[1:]


def _lines(text: str) -> Iterable[tuple[FieldPath, int]]:
    table: FieldPath = ()
    entries: dict[str, int] = {}
    inside_text = False
    # splitlines would also break at characters that do not end a line of TOML.
    for number, line in enumerate(text.split("\n"), start=1):
        was_inside_text = inside_text
        if (line.count('"""') + line.count("'''")) % 2:
            inside_text = not inside_text
        if was_inside_text:
            continue
        if header := _HEADER.match(line):
            table = _table(header, entries)
            yield table, number
        elif line.startswith("["):
            table = UNKNOWN_PATH
        elif key := _KEY.match(line):
            yield (*table, key["name"]), number


def _table(header: re.Match[str], entries: dict[str, int]) -> FieldPath:
    """The path of a section; `entries` counts the entries of each list of sections."""
    parts = header["name"].split(".")
    if header["open"] == "[[":
        entries[header["name"]] = entries.get(header["name"], -1) + 1
    path: list[str | int] = []
    for depth, part in enumerate(parts, start=1):
        path.append(part)
        if (entry := entries.get(".".join(parts[:depth]))) is not None:
            path.append(entry)
    return tuple(path)
