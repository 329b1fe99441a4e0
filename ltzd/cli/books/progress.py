"""How far `ltzd books` is: a bar on a terminal, else a line for each ten seconds of work."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ltzd.cli.output import print_message

BeginStep = Callable[[str], None]
"""Called with the name of each step when it begins."""

_LINE_SECONDS = 10.0


@contextmanager
def step_progress(steps: int) -> Iterator[BeginStep]:
    """Show on standard error which of the steps is under way."""
    if not sys.stderr.isatty():
        yield StepLines(steps).begin
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn())
    # Erased at the end: the report follows.
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("", total=steps, completed=-1)
        yield lambda step: bar.update(task, advance=1, description=step)


class StepLines:
    """Prints the step under way, at most once in `every_seconds`."""

    def __init__(
        self,
        steps: int,
        print_line: Callable[[str], None] = print_message,
        clock: Callable[[], float] = monotonic,
        every_seconds: float = _LINE_SECONDS,
    ) -> None:
        self._steps = steps
        self._print_line = print_line
        self._clock = clock
        self._every_seconds = every_seconds
        self._begun = 0
        self._told_at = clock()

    def begin(self, step: str) -> None:
        self._begun += 1
        now = self._clock()
        if now - self._told_at >= self._every_seconds:
            self._told_at = now
            self._print_line(f"Step {self._begun} of {self._steps}: {step}.")
