"""Standard output is for data, standard error for words."""

import sys
from contextlib import suppress
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.text import Text

from ltzd.secret_files import make_private

_JSON = msgspec.json.Encoder(decimal_format="number")
_WIDE = 240


def print_message(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def print_json(value: Any) -> None:
    """Decimals keep every digit."""
    print(msgspec.json.format(_JSON.encode(value), indent=2).decode(), flush=True)


def print_keys(value: Any) -> None:
    """As `print_json`; a file that standard output goes to is closed to others first."""
    with suppress(OSError, ValueError):  # a stream of tests has no descriptor
        if make_private(sys.stdout.fileno()):
            print_message(
                "The file that the keys go to was readable by others: its mode is 0600 now."
            )
    print_json(value)


def print_page(page: RenderableType) -> None:
    """In a pipe or a file nothing is folded to the width of a terminal that is not there."""
    Console(width=None if sys.stdout.isatty() else _WIDE).print(page)


def plain_text(text: object) -> Text:
    """Text that others wrote: it neither paints nor moves the cursor."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(text))
    return Text(shown, overflow="fold")
