"""The logs of ltzd's processes, told beside a test that fails while they run."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LINES = 30
_CHARACTERS = 600
"""Of a line at most."""
_running: list[Path] = []
_ended: list[tuple[str, str]] = []
"""The sections of the processes that have ended since the current test began."""


@contextmanager
def told_on_failure(log: Path) -> Iterator[None]:
    """A test that fails in the block, or after the block has ended within it, tells of the log."""
    _running.append(log)
    try:
        yield
    finally:
        _running.remove(log)
        _ended.append(_section(log))


def pytest_runtest_logstart() -> None:
    _ended.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [*map(_section, _running), *_ended]
    return report


def last_lines(text: str) -> str:
    """The last lines of a log that are no matter of course."""
    lines = [line[:_CHARACTERS] for line in text.splitlines() if not _is_usual(line)]
    return "\n".join(lines[-LINES:])


def _section(log: Path) -> tuple[str, str]:
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        text = ""
    return f"Last lines of {log.name} in {log.parent.name}", last_lines(text)


def _is_usual(line: str) -> bool:
    if not line.startswith("{"):
        return False
    try:
        return bool(json.loads(line).get("level") == "info")
    except json.JSONDecodeError:
        return False
