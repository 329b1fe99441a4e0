"""The lines that ltzd writes to its log, read from the source, and the page that explains them.

`make watching` writes docs/runbooks/logs.md: it takes names, levels and fields from the source, and
keeps the meanings that the page has. Dev mode's own lines are left out.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from tests.support.watching.rules import ROOT

LOGS_PAGE: Final = ROOT / "docs" / "runbooks" / "logs.md"

_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_LOGGERS: Final = ("log", "_log")
_KINDS: Final = ("mint", "relay")
_NAMES_OF: Final = {
    "f'{self._kind}.cancelled'": [f"{kind}.cancelled" for kind in _KINDS],
    "f'{self._kind}.orphaned'": [f"{kind}.orphaned" for kind in _KINDS],
    "f'{self._kind}.reverted'": [f"{kind}.reverted" for kind in _KINDS],
    "f'{self._lane.kind}.{state.value}'": [
        f"{kind}.{state}" for kind in _KINDS for state in ("mined", "confirmed")
    ],
    "event": ["site_member.created", "site_member.link_ended"],
    "self._begins": [],
    "self._ends": [],
}
"""Names that the source computes, by the expression that does so."""

_HEAD: Final = """\
# Log lines

This page is for operators: every line that ltzd writes, by its name (`event` in a line of JSON).
`make watching` writes the names, levels and fields from the source. Every line also has
`timestamp` and `level`, and a line that belongs to a request its `request_id`.
[Logs](../operations.md#logs) has the format and the settings.

A `critical` or `error` line needs a person; what lasts or costs money also has an
[alert](alerts.md). A `warning` reports an outage that ends by itself, or work that a
person has ordered. An `info` line is a change of state. Libraries and Python itself write further
lines, whose names are sentences.

| line | level | fields | meaning |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class LogLine:
    name: str
    levels: tuple[str, ...]
    fields: tuple[str, ...]


@cache
def log_lines() -> tuple[LogLine, ...]:
    """Every line, in the order of names. A line that several places write has all their fields."""
    levels: dict[str, dict[str, None]] = {}
    fields: dict[str, dict[str, None]] = {}
    for path in sorted((ROOT / "ltzd").rglob("*.py")):
        if "dev" in path.relative_to(ROOT / "ltzd").parts:
            continue
        module = ast.parse(path.read_text())
        outages = _outages_in(module)
        for node in ast.walk(module):
            if not isinstance(node, ast.Call):
                continue
            for name, level, given in _written_by(node, outages):
                levels.setdefault(name, {})[level] = None
                fields.setdefault(name, {}).update(dict.fromkeys(given))
    return tuple(
        LogLine(name, tuple(sorted(levels[name], key=_LEVELS.index)), tuple(fields[name]))
        for name in sorted(levels)
    )


def _outages_in(module: ast.Module) -> dict[str, tuple[str, str]]:
    """The names of both lines of each Outage, by the expression that holds the Outage."""
    outages = {}
    for node in ast.walk(module):
        match node:
            case ast.Assign(
                targets=[target], value=ast.Call(func=ast.Name(id="Outage"), args=args)
            ):
                begins, ends = (ast.literal_eval(each) for each in args[:2])
                outages[ast.unparse(target)] = (begins, ends)
    return outages


def _written_by(
    call: ast.Call, outages: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[str, str, list[str]]]:
    given = [keyword.arg for keyword in call.keywords if keyword.arg is not None]
    match call.func:
        case ast.Name(id="Outage"):
            begins, ends = (ast.literal_eval(each) for each in call.args[:2])
            yield begins, "warning", ["reason"]
            yield ends, "info", ["failures", "seconds"]
        case ast.Attribute(value=outage, attr="failed") if ast.unparse(outage) in outages:
            yield outages[ast.unparse(outage)][0], "warning", ["reason", *given]
        case ast.Attribute(value=outage, attr="over") if ast.unparse(outage) in outages:
            yield outages[ast.unparse(outage)][1], "info", ["failures", "seconds", *given]
        case ast.Attribute() | ast.IfExp():
            for level in _levels(call.func):
                for name in _names(call.args[0]):
                    yield name, level, given


def _levels(function: ast.expr) -> list[str]:
    """Empty for a function that writes no line."""
    match function:
        case ast.IfExp(body=body, orelse=otherwise):
            return [*_levels(body), *_levels(otherwise)]
        case ast.Attribute(value=ast.Name(id=logger), attr=method) if logger in _LOGGERS:
            level = "error" if method == "exception" else method
            return [level] if level in _LEVELS else []
    return []


def _names(expression: ast.expr) -> list[str]:
    match expression:
        case ast.Constant(value=str(name)):
            return [name]
        case ast.IfExp(body=body, orelse=otherwise):
            return [*_names(body), *_names(otherwise)]
    return _NAMES_OF[ast.unparse(expression)]


def meanings() -> dict[str, str]:
    """The meaning of each line that the page has."""
    if not LOGS_PAGE.exists():
        return {}
    rows = re.findall(
        r"^\| `([\w.]+)` \|[^|]*\|[^|]*\| (.*) \|$", LOGS_PAGE.read_text(), re.MULTILINE
    )
    return dict(rows)


def logs_page() -> str:
    """Keeps the meanings that the page already has; a new line has none."""
    known = meanings()
    lines = []
    for line in log_lines():
        fields = ", ".join(f"`{each}`" for each in line.fields)
        levels = " or ".join(line.levels)
        lines.append(f"| `{line.name}` | {levels} | {fields} | {known.get(line.name, '')} |\n")
    return _HEAD + "".join(lines)
