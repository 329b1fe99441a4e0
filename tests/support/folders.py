"""Data directories for real services in tests, emptied of processes even after a killed run."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ltzd.dev.services import data_dir, processes
from ltzd.errors import Misconfigured

_PREFIX = "ltzd-test-"
_SURELY_HELD_AFTER_SECONDS = 60.0
_MEMORY = Path("/dev/shm")
_PLENTY_BYTES = 4 * 2**30


@asynccontextmanager
async def a_data_directory() -> AsyncIterator[Path]:
    """A held, empty data directory; whatever runs in it is stopped, and it is deleted."""
    await _sweep()
    parent = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=data_parent()))
    try:
        with data_dir.locked(parent / "data") as held:
            try:
                yield held
            finally:
                await processes.stop_all(held, 8.0)
    finally:
        # The sweep of another run may be deleting it too; what is left goes with the next one.
        shutil.rmtree(parent, ignore_errors=True)


def data_parent() -> Path:
    """Returns /dev/shm if it has space for databases of 300 files each, else /tmp."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_MEMORY).free >= _PLENTY_BYTES and os.access(_MEMORY, os.W_OK):
            return _MEMORY
    return Path(tempfile.gettempdir())


async def _sweep() -> None:
    """End what a test run that was killed left behind; a living run holds its directories."""
    for parent in _perhaps_abandoned():
        with contextlib.suppress(Misconfigured, OSError):
            with data_dir.locked(parent / "data") as held:
                await processes.stop_all(held, 8.0)
            shutil.rmtree(parent)


def _perhaps_abandoned() -> list[Path]:
    old = time.time() - _SURELY_HELD_AFTER_SECONDS
    places = {_MEMORY, Path(tempfile.gettempdir())}
    with contextlib.suppress(FileNotFoundError):
        folders = [folder for place in places for folder in place.glob(f"{_PREFIX}*")]
        return [folder for folder in folders if folder.stat().st_mtime < old]
    return []
