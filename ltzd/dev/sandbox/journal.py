"""An append-only file of JSON lines, locked by one process, with group commit.

`append` returns a sequence number and does not wait; `wait_durable` waits until that record is on
disk. Records appended during a write are written together with one fsync. Opening the file cuts off
an incomplete last line, whose record was never durable.
"""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Self

import msgspec

from ltzd.errors import Misconfigured

Record = dict[str, object]


class Journal:
    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._pending: list[bytes] = []
        self._appended = 0
        self._written = 0
        self._failure: OSError | None = None
        self._writer: asyncio.Task[None] | None = None
        self._advance = asyncio.Event()

    @classmethod
    def open(cls, path: Path) -> tuple[Self, list[Record]]:
        """Return the journal and its records. Raises Misconfigured."""
        try:
            descriptor = _open_locked(path)
        except OSError as error:
            raise Misconfigured(f"The sandbox cannot use {path}: {error.strerror}.") from error
        try:
            return cls(descriptor, path), _read_records(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise

    def append(self, record: Record) -> int:
        self._raise_failure()
        self._pending.append(msgspec.json.encode(record) + b"\n")
        self._appended += 1
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name="sandbox journal")
        return self._appended

    def is_durable(self, sequence: int) -> bool:
        return self._written >= sequence

    async def wait_durable(self, sequence: int) -> None:
        """Raises Misconfigured if the file cannot be written."""
        while self._written < sequence:
            self._raise_failure()
            await self._advance.wait()

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer
        os.close(self._descriptor)

    async def _write(self) -> None:
        while self._pending and self._failure is None:
            batch, self._pending = self._pending, []
            try:
                await asyncio.to_thread(_write_and_sync, self._descriptor, b"".join(batch))
                self._written += len(batch)
            except OSError as error:
                self._failure = error
            # Set and cleared at once: wakes the present waiters only.
            self._advance.set()
            self._advance.clear()
        self._writer = None

    def _raise_failure(self) -> None:
        # Memory and file differ after a failed write, until a restart reads the file again.
        if self._failure is not None:
            raise Misconfigured(f"The sandbox cannot write {self._path}: {self._failure.strerror}.")


def _open_locked(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sync_directory(path.parent)
    except BlockingIOError as error:
        os.close(descriptor)
        raise Misconfigured(
            f"Another sandbox uses {path.parent}: stop it or choose another data directory."
        ) from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_records(descriptor: int, path: Path) -> list[Record]:
    content = path.read_bytes()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        os.ftruncate(descriptor, complete)
    lines = content[:complete].splitlines()
    try:
        return [msgspec.json.decode(line, type=dict[str, object]) for line in lines]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(
            f"{path} is damaged; start once with --clean to create a new one."
        ) from error


def _write_and_sync(descriptor: int, content: bytes) -> None:
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]
    os.fsync(descriptor)
