"""How far a command on the index is: a bar on a terminal, else a line every ten seconds."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_LINE_SECONDS = 10.0


class Advance(Protocol):
    def __call__(self, block: int, /) -> None:
        """Tell that all blocks up to this one are done."""


@contextmanager
def block_progress(
    verb: str, first: int, last: int, *, is_quiet: bool = False
) -> Iterator[Advance]:
    """Show on standard error how many of the blocks first…last are done."""
    if is_quiet:
        yield lambda _block: None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(verb, total=last - first + 1)
            yield lambda block: bar.update(task, completed=block - first + 1)
    else:
        yield _Lines(verb, first, last).advance


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))


class _Lines:
    def __init__(self, verb: str, first: int, last: int) -> None:
        self._verb = verb
        self._first = first
        self._last = last
        self._shown_at = monotonic()

    def advance(self, block: int) -> None:
        if monotonic() - self._shown_at >= _LINE_SECONDS:
            self._shown_at = monotonic()
            share = 100 * (block - self._first + 1) // max(1, self._last - self._first + 1)
            print(f"{self._verb} block {block} of {self._last} ({share} %)", file=sys.stderr)
