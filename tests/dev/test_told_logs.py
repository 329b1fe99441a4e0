"""A failed test tells what the processes of ltzd logged."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import told_logs
from tests.support.told_logs import LINES, told_on_failure

USUAL = '{"level": "info", "event": "http.request"}\n'
TOLD = '{"level": "warning", "event": "node.lost"}\n'


def told_of(log: Path, *, failed: bool) -> list[str]:
    """Returns the sections about the log that a test which has failed or passed now tells."""
    report: Any = SimpleNamespace(failed=failed, sections=[])
    hook = told_logs.pytest_runtest_makereport()
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(report)
    title = f"Last lines of {log.name} in {log.parent.name}"
    return [text for name, text in report.sections if name == title]


def test_a_failed_test_tells_the_last_unusual_lines_and_a_passed_one_none(tmp_path: Path) -> None:
    log = tmp_path / "out"
    log.write_text(TOLD * (LINES + 1) + USUAL + "Traceback\n")
    with told_on_failure(log):
        assert told_of(log, failed=True) == [TOLD * (LINES - 1) + "Traceback"]
        assert told_of(log, failed=False) == []


def test_a_process_that_ended_with_the_test_is_told_until_the_next_test(tmp_path: Path) -> None:
    log = tmp_path / "out"
    log.write_text(TOLD)
    with told_on_failure(log):
        log.write_text(TOLD + TOLD)
    log.unlink()
    assert told_of(log, failed=True) == [(TOLD + TOLD).strip()]
    told_logs.pytest_runtest_logstart()
    assert told_of(log, failed=True) == []
