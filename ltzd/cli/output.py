"""Printing: standard output carries data, standard error carries messages to a person."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import structlog
from rich.console import Console, RenderableType
from rich.text import Text

from ltzd.cli.options import printable, with_config
from ltzd.cli.tables import fitted
from ltzd.cli.write_errors import drop_output
from ltzd.errors import Misconfigured
from ltzd.secret_files import make_private

_JSON = msgspec.json.Encoder(decimal_format="number")
_PIPE_WIDTH = 240


@contextmanager
def only_errors_logged() -> Iterator[None]:
    """During the block, log lines go to standard error, and only errors: the command tells more."""
    with logged_to_stderr("ERROR"):
        yield


@contextmanager
def logged_to_stderr(level: str = "INFO") -> Iterator[None]:
    """During the block, log lines of this level and above go to standard error."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def print_line(line: str) -> bool:
    """Print at once. Returns False after the reader of the pipe has gone."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        drop_output()
        return False
    return True


def print_message(sentence: str) -> None:
    print(with_config(sentence, sys.argv), file=sys.stderr)


def print_json(value: Any) -> None:
    """Decimals keep every digit."""
    print(msgspec.json.format(_JSON.encode(value), indent=2).decode(), flush=True)


def print_keys(value: Any) -> None:
    """Print as JSON; a file that standard output is redirected to is made private first.

    Raises Misconfigured if the keys cannot be printed: they are in force all the same.
    """
    with suppress(OSError, ValueError):  # a test's stream has no descriptor
        if make_private(sys.stdout.fileno()):
            print_message("The output file was readable by others: its mode is 0600 now.")
    try:
        print_json(value)
    except OSError as error:
        drop_output()
        raise Misconfigured(
            f"The output cannot be written ({error.strerror}), so nobody has seen the new keys. "
            "They are in force: replace each one by `ltzd brand rotate-key`."
        ) from error


def print_page(page: RenderableType) -> None:
    """Print for the terminal's width; in a pipe or a file lines are up to 240 columns long.

    A table that is too wide for a terminal is printed as a block for each row.
    """
    width = page_width()
    Console(width=width).print(fitted(page, width))


def page_width() -> int:
    """The columns that a page may have: the terminal's, or those of a pipe."""
    return Console().width if sys.stdout.isatty() else _PIPE_WIDTH


def cut_text(text: object) -> Text:
    """Plain text on one line, which ends with an ellipsis where its column is too narrow."""
    cut = plain_text(text)
    cut.no_wrap, cut.overflow = True, "ellipsis"
    return cut


def plain_text(text: object) -> Text:
    """Text of a foreign origin, with control characters escaped and without markup."""
    return Text(printable(str(text)), overflow="fold")
