"""Writes a CSV file (RFC 4180, UTF-8), or CSV to standard output.

A file is written completely or not at all. A write error is raised as Misconfigured, because
callers take an OSError for a lost database connection.
"""

import csv
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Self

from ltzd.cli.write_errors import drop_output
from ltzd.errors import Misconfigured

STANDARD_OUTPUT = "-"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a cell that begins with one of these as a formula."""


class CsvFile:
    def __init__(self, file: str) -> None:
        self._file = file
        self._is_output = file == STANDARD_OUTPUT
        self._target = Path(file)
        # Renaming a file over a pipe or a device would replace it.
        is_special = self._target.exists() and not self._target.is_file()
        name = self._target.name
        self._path = self._target if is_special else self._target.with_name(f"{name}.partial")

    def __enter__(self) -> Self:
        with self._faults():
            self._out = self._open()
        self._rows = csv.writer(self._out)
        return self

    def add(self, cells: Iterable[object]) -> None:
        with self._faults():
            self._rows.writerow(map(_cell, cells))

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        except Misconfigured:
            self._abandon()
            raise
        if kind is not None:
            self._abandon()

    def _finish(self) -> None:
        with self._faults():
            self._out.flush()
            if self._is_output:
                self._out.detach()
                return
            self._out.close()
            if self._path != self._target:
                self._path.replace(self._target)

    def _open(self) -> TextIOWrapper:
        if self._is_output:
            return TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="")
        return self._path.open("w", encoding="utf-8", newline="")

    def _abandon(self) -> None:
        with suppress(OSError):
            if self._is_output:
                self._out.detach()
                return
            self._out.close()
        if self._path != self._target:
            self._path.unlink(missing_ok=True)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            if self._is_output:
                drop_output()
            raise Misconfigured(
                "The reader closed the pipe before the end of the statement."
            ) from None
        except OSError as error:
            raise Misconfigured(f"{self._file} cannot be written: {error.strerror}.") from error


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
