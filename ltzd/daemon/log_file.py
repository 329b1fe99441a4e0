"""Writes log lines to a stream without ever holding up the event loop.

A line goes to the stream at once. While the reader of a pipe or a socket stands still, lines are
kept in their order, up to `KEPT_BYTES`, and a thread writes them once there is space. A terminal's
lines are all written by the thread, since a terminal may make a writer wait whatever poll reports.
Lines beyond that are lost and counted until all kept lines are written; `log.lines_lost` follows
these. A line that the stream refuses, for example on a full disk, is lost and counted too. Nothing
is raised in these cases: it would end the lane or the request that logs.
"""

import io
import os
import select
import stat
import threading
from collections import deque
from contextlib import suppress
from typing import TextIO

import structlog

from ltzd import telemetry

log = structlog.get_logger()

KEPT_BYTES = 4 * 1024 * 1024
"""About 10,000 lines."""
AT_ONCE_BYTES = select.PIPE_BUF
"""A pipe or a socket that poll reports as writable takes so many bytes without waiting, unless
another process writes to it at that moment."""
END_SECONDS = 5.0
"""The end of the process waits so long for a reader that stands still."""


class LogFile(io.TextIOBase):
    """The stream as a file for log handlers; may be written by several threads."""

    def __init__(self, stream: TextIO, kept_bytes: int = KEPT_BYTES) -> None:
        self._stream = stream
        self._kept_bytes = kept_bytes
        self._descriptor = _descriptor_that_may_wait(stream)
        self._writes_at_once = not stream.isatty()
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        # Reentrant: the collector of garbage may log while a line is written.
        self._lock = threading.RLock()
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._lost = 0
        self._writer: threading.Thread | None = None

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str) -> int:
        if self._descriptor is None:
            self._write_to_stream(text)
        else:
            self._write_or_keep(self._descriptor, text.encode(self._encoding, "backslashreplace"))
        return len(text)

    def finish(self) -> None:
        """Return once the kept lines are written, or after `END_SECONDS`."""
        writer = self._writer
        if writer is not None:
            writer.join(END_SECONDS)

    def _write_to_stream(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            telemetry.LOG_LINES_LOST.inc()

    def _write_or_keep(self, descriptor: int, line: bytes) -> None:
        with self._lock:
            if self._writes_at_once and self._writer is None and not self._kept:
                line = _write_at_once(descriptor, line)
            if not line:
                return
            if self._lost or self._size + len(line) > self._kept_bytes:
                self._lost += 1
                telemetry.LOG_LINES_LOST.inc()
                return
            self._kept.append(line)
            self._size += len(line)
            if self._writer is None:
                self._start_writer(descriptor)

    def _start_writer(self, descriptor: int) -> None:
        # A daemon thread, since a reader that stands still for good must not keep the process.
        writer = threading.Thread(target=self._write_kept, args=(descriptor,), daemon=True)
        with suppress(RuntimeError):  # no thread can be had now: the next line tries again
            writer.start()
            self._writer = writer

    def _write_kept(self, descriptor: int) -> None:
        while (line := self._next_kept()) is not None:
            _write_when_possible(descriptor, line)

    def _next_kept(self) -> bytes | None:
        """Return None at the end of the thread: then lines are written at once again."""
        while True:
            with self._lock:
                if self._kept:
                    line = self._kept.popleft()
                    self._size -= len(line)
                    return line
                lost, self._lost = self._lost, 0
                if not lost:
                    self._writer = None
                    return None
            log.warning("log.lines_lost", lines=lost)


def _descriptor_that_may_wait(stream: TextIO) -> int | None:
    """Return that of a pipe, a socket or a terminal, and None for a file or a text in memory."""
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return None
    may_wait = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()
    return descriptor if may_wait else None


def _write_at_once(descriptor: int, line: bytes) -> bytes:
    """Return the rest that the descriptor does not take now."""
    try:
        while line and _is_writable(descriptor, 0):
            line = line[os.write(descriptor, line[:AT_ONCE_BYTES]) :]
    except BlockingIOError:
        return line
    except OSError:
        telemetry.LOG_LINES_LOST.inc()
        return b""
    return line


def _write_when_possible(descriptor: int, line: bytes) -> None:
    """Wait for space, which may take for ever."""
    while line:
        _is_writable(descriptor, None)
        try:
            line = line[os.write(descriptor, line[:AT_ONCE_BYTES]) :]
        except BlockingIOError:
            continue
        except OSError:
            telemetry.LOG_LINES_LOST.inc()
            return


def _is_writable(descriptor: int, milliseconds: float | None) -> bool:
    """True also for a descriptor whose reader has gone: writing to it raises OSError."""
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    return bool(poller.poll(milliseconds))
