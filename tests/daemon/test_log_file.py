"""A reader of the log that stands still holds up nothing, and loses no more than it must."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
import structlog

from ltzd import telemetry
from ltzd.daemon import log_file
from ltzd.daemon.log_file import LogFile

PATIENCE_SECONDS = 60.0
"""Longer than the busiest machine needs; a test that passes does not wait for it."""
LINES = 2_000
"""Some 200 KB, three times as much as a pipe holds."""


@dataclass(frozen=True)
class Pipe:
    file: LogFile
    reading: int

    def read_all(self) -> list[str]:
        """The lines up to the end of the writing side, which this closes when all is written."""
        chunks: list[bytes] = []

        def read() -> None:
            while chunk := os.read(self.reading, 65_536):
                chunks.append(chunk)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        self.file.finish()
        self.file._stream.close()
        _joined(reader)
        return b"".join(chunks).decode().splitlines()


def _joined(thread: threading.Thread) -> None:
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Pipe]]:
    """Makes a pipe whose reader stands still until `read_all`."""
    monkeypatch.setattr(log_file, "END_SECONDS", PATIENCE_SECONDS)
    before = structlog.get_config()
    opened: list[Pipe] = []

    def open_pipe(kept_bytes: int = log_file.KEPT_BYTES) -> Pipe:
        reading, writing = os.pipe()
        stream = os.fdopen(writing, "w", encoding="utf-8")
        opened.append(Pipe(LogFile(stream, kept_bytes), reading))
        structlog.configure(
            processors=[structlog.processors.JSONRenderer()],
            logger_factory=structlog.WriteLoggerFactory(file=opened[-1].file),  # type: ignore[arg-type]
        )
        return opened[-1]

    yield open_pipe
    structlog.configure(**before)
    for each in opened:
        each.file._stream.close()
        with suppress(OSError):
            os.close(each.reading)


def _line(number: int) -> str:
    return f"{number} ".ljust(99, ".") + "\n"


def _write_lines(file: LogFile, count: int = LINES) -> None:
    """In a thread, since the fault that this is about would never return."""

    def write() -> None:
        for number in range(count):
            file.write(_line(number))

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    _joined(writer)


def _lost_lines() -> float:
    return float(telemetry.LOG_LINES_LOST._value.get())


def test_lines_wait_in_their_order_for_a_reader_that_stands_still(
    pipe: Callable[..., Pipe],
) -> None:
    log, before = pipe(), _lost_lines()
    _write_lines(log.file)
    assert log.read_all() == [_line(number).rstrip() for number in range(LINES)]
    assert _lost_lines() == before


def test_lines_beyond_the_bound_are_counted_and_the_log_says_how_many(
    pipe: Callable[..., Pipe],
) -> None:
    log, before = pipe(kept_bytes=10_000), _lost_lines()
    _write_lines(log.file)
    lost = int(_lost_lines() - before)
    *lines, report = log.read_all()
    assert 0 < lost < LINES
    assert lines == [_line(number).rstrip() for number in range(LINES - lost)]
    assert json.loads(report) == {"event": "log.lines_lost", "lines": lost}


def test_a_line_longer_than_the_pipe_comes_whole_and_before_the_next(
    pipe: Callable[..., Pipe],
) -> None:
    log = pipe()
    log.file.write("x" * 200_000 + "\n")
    log.file.write("next\n")
    assert log.read_all() == ["x" * 200_000, "next"]


def test_lines_that_wait_for_a_reader_that_ends_are_counted(pipe: Callable[..., Pipe]) -> None:
    log, before = pipe(), _lost_lines()
    _write_lines(log.file)
    os.close(log.reading)
    log.file.finish()
    log.file.write("one more\n")
    assert 0 < _lost_lines() - before <= LINES + 1


def test_lines_wait_while_no_thread_can_be_started(
    pipe: Callable[..., Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = pipe()

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for number in range(LINES):
            log.file.write(_line(number))
    log.file.write("last\n")
    assert log.read_all() == [*(_line(number).rstrip() for number in range(LINES)), "last"]


def test_a_process_that_ends_in_order_loses_no_line_of_a_slow_reader() -> None:
    """The reader begins only once the process has written its last line."""
    program = (
        "import structlog; from ltzd.daemon import logs, log_file\n"
        f"log_file.END_SECONDS = {PATIENCE_SECONDS}\n"
        "logs.configure()\n"
        f"for number in range({LINES}): structlog.get_logger().info('line', number=number)\n"
        "print('all', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "all\n"
        _out, log = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert [json.loads(line)["number"] for line in log.splitlines()] == list(range(LINES))


def test_a_terminal_that_stands_still_holds_up_nobody() -> None:
    """Poll reports a terminal as writable whose next line would wait."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        file = LogFile(stream)
        _write_lines(file)
        os.close(ours)  # The file's thread, which still writes, gets an error and ends.
        file.finish()
