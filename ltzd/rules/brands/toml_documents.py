"""TOML that people write: its content, and where in the file each fault lies.

The standard library's parser keeps no positions, so lines are found again by a light scan:
right for plain `key = value` lines, and unknown for inline tables, dotted keys and nested sections.
"""

import re
import tomllib
from collections.abc import Iterable
from decimal import Decimal

from pydantic_core import ErrorDetails

from ltzd.errors import FileRejected

FieldPath = tuple[str | int, ...]
"""Where a value stands in the document: ("events", 1, "reward")."""

UNKNOWN: FieldPath = ("?",)

_HEADER = re.compile(r"\s*(?P<open>\[\[?)\s*(?P<name>[A-Za-z0-9_-]+)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*(?P<name>[A-Za-z0-9_-]+)\s*=")


class TomlFile:
    """Raises FileRejected if the text is no TOML."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._lines = dict(_lines(text))
        try:
            self.document: dict[str, object] = tomllib.loads(text, parse_float=Decimal)
        except tomllib.TOMLDecodeError as error:
            # A key given twice on the last line, say, is found only at the end.
            end = f"at line {len(text.splitlines())}, the end"
            reason = str(error).replace("at end of document", end)
            raise FileRejected([f"{name}: no valid TOML: {reason}"]) from error
        except (ValueError, RecursionError) as error:
            # The parser's limits are the language's own: digits of a number, depth of the stack.
            reason = "a number is too long, or lists are nested too deeply"
            raise FileRejected([f"{name}: no valid TOML: {reason}"]) from error

    def fault(self, place: FieldPath, reason: str) -> str:
        """One line naming file, line where it is known, field and reason."""
        line = self._line_of(place)
        where = self.name if line is None else f"{self.name}:{line}"
        return f"{where}: {dotted(place)}: {reason}" if place else f"{where}: {reason}"

    def _line_of(self, place: FieldPath) -> int | None:
        """The line of the value, else of what it stands in: a missing key has its section's."""
        for length in range(len(place), 0, -1):
            if (line := self._lines.get(place[:length])) is not None:
                return line
        return self._lines.get((*place[:1], 0))


def dotted(place: Iterable[str | int]) -> str:
    """`events[1].reward`"""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def reason_of(error: ErrorDetails) -> str:
    """What pydantic found wrong, in this house's words and without the value itself."""
    match error["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return "unknown key"
        case "value_error":
            return str(error["ctx"]["error"])
        case "tuple_type":
            return "must be a list"
        case "model_type":
            return "must be a section"
    message = error["msg"].replace("Input should", "must").replace("String should", "must")
    return message[0].lower() + message[1:]


def _lines(text: str) -> Iterable[tuple[FieldPath, int]]:
    table: FieldPath = ()
    entries: dict[str, int] = {}
    inside_text = False
    # Not splitlines: it also breaks at characters that end no line of TOML.
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
            table = UNKNOWN
        elif key := _KEY.match(line):
            yield (*table, key["name"]), number


def _table(header: re.Match[str], entries: dict[str, int]) -> FieldPath:
    name = header["name"]
    if header["open"] == "[":
        return (name,)
    entries[name] = entries.get(name, -1) + 1
    return (name, entries[name])
