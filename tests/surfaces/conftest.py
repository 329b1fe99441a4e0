"""The shared event surface, and one of a test's own; each test may cause log lines of its own."""

import pytest

from ltzd.concurrency.line_limits import LineLimits
from ltzd.http import errors
from tests.support.surfaces.event_surface import event_surface, own_event_surface

__all__ = ["event_surface", "own_event_surface"]


@pytest.fixture(autouse=True)
def lines_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process writes a bounded number of lines a second, and tests take milliseconds."""
    monkeypatch.setattr(errors, "_lines", LineLimits())
