"""The data directory: created with a marker file, locked by one ltzd at a time, and emptied.

The directory holds keys and passwords, so other users cannot list it. A folder without the marker
is never emptied, and a folder that holds other files never gets the marker.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ltzd.dev.services import processes
from ltzd.errors import Misconfigured

MARKER = "ltzd-data-directory"
LOCK = "lock"
_MARKER_TEXT = "Made by ltzd dev. `ltzd dev --clean` deletes everything in this folder.\n"


@contextlib.contextmanager
def locked(data_dir: Path) -> Iterator[Path]:
    """Create the directory if needed and lock it; yields its absolute path."""
    folder = _marked(data_dir.absolute())
    descriptor = _lock_file(folder)
    try:
        _lock(descriptor, folder)
        yield folder
    finally:
        os.close(descriptor)


async def empty(data_dir: Path) -> None:
    """Stop the services of the locked directory and delete its content."""
    if not (data_dir / MARKER).is_file():
        raise Misconfigured(
            f"{data_dir} was not made by ltzd, so it is not deleted; choose another --data-dir."
        )
    await processes.stop_all(data_dir)
    await asyncio.to_thread(_delete_content, data_dir)


def read_number(file: Path) -> int:
    """The number in a file of the directory, or 0 if the file holds none.

    A kill or a full disk may have left the file empty.
    """
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _marked(folder: Path) -> Path:
    try:
        # Execute permission for others: PostgreSQL may run as another user.
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        if not (folder / MARKER).is_file():
            if any(folder.iterdir()):
                raise Misconfigured(
                    f"{folder} holds files that are not ltzd's; "
                    "choose an empty or new folder with --data-dir."
                )
            folder.chmod(0o711)
            (folder / MARKER).write_text(_MARKER_TEXT)
    except OSError as error:
        raise _unusable(folder, error) from error
    return folder


def _unusable(folder: Path, error: OSError) -> Misconfigured:
    return Misconfigured(
        f"The data directory {folder} cannot be used ({error.strerror}); "
        "choose another with --data-dir."
    )


def _lock_file(folder: Path) -> int:
    try:
        return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unusable(folder, error) from error


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        raise Misconfigured(
            f"Another ltzd (process {holder or 'unknown'}) uses {folder}; "
            "stop it or choose another with --data-dir."
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _delete_content(folder: Path) -> None:
    try:
        for entry in folder.iterdir():
            if entry.name in {MARKER, LOCK}:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    except OSError as error:
        raise Misconfigured(
            f"{error.filename} cannot be deleted ({error.strerror}); delete {folder} yourself."
        ) from error
