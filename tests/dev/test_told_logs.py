"""A failed test tells what the processes of ltzd logged."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import told_logs
from tests.support.told_logs import LINES, told_on_failure

USUAL = '{"level": "info", "event": "http.request"}\n'
TOLD = '{"level": "warning", "event": "node.lost"}\n'


def sections_of(*, failed: bool) -> list[tuple[str, str]]:
    report: Any = SimpleNamespace(failed=failed, sections=[])
    hook = told_logs.pytest_runtest_makereport()
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(report)
    sections: list[tuple[str, str]] = report.sections
    return sections


def test_a_failed_test_tells_the_last_unusual_lines_and_a_passed_one_none(tmp_path: Path) -> None:
    log = tmp_path / "out"
    log.write_text(TOLD * (LINES + 1) + USUAL + "Traceback\n")
    with told_on_failure(log):
        (section,) = sections_of(failed=True)
        assert section[1] == TOLD * (LINES - 1) + "Traceback"
        assert sections_of(failed=False) == []


def test_a_process_that_ended_with_the_test_is_told_until_the_next_test(tmp_path: Path) -> None:
    log = tmp_path / "out"
    log.write_text(TOLD)
    with told_on_failure(log):
        log.write_text(TOLD + TOLD)
    log.unlink()
    (section,) = sections_of(failed=True)
    assert section == (f"Last lines of out in {tmp_path.name}", (TOLD + TOLD).strip())
    told_logs.pytest_runtest_logstart()
    assert sections_of(failed=True) == []
