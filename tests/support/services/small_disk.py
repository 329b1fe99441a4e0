"""A disk of its own for a service, which a test can fill: a tmpfs, where root may mount one."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ltzd.dev.services import processes
from tests.support.folders import a_data_directory

_FILLER = "filler"
_PIECES = (2**26, 2**20, 2**12)
"""Bytes: others write meanwhile, so the free space cannot be taken in one piece."""


@dataclass(frozen=True)
class Disk:
    """`is_own`: `fill` fills this disk alone. Elsewhere it would fill the machine's."""

    folder: Path
    is_own: bool

    def fill(self) -> None:
        assert self.is_own
        with (self.folder / _FILLER).open("wb") as filler:
            for size in _PIECES:
                with suppress(OSError):
                    while True:
                        os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, size)

    def make_room(self) -> None:
        (self.folder / _FILLER).unlink(missing_ok=True)


@asynccontextmanager
async def a_disk(mebibytes: int) -> AsyncIterator[Disk]:
    """A data directory on a disk of this size, or an ordinary one where nothing can be mounted."""
    async with a_data_directory() as folder:
        is_own = os.geteuid() == 0 and await _mount(folder, mebibytes)
        try:
            yield Disk(folder, is_own)
        finally:
            if is_own:
                await processes.stop_all(folder, 8.0)
                await _run("umount", "--lazy", str(folder))


async def _mount(folder: Path, mebibytes: int) -> bool:
    options = f"size={mebibytes}m,mode=0755"
    return await _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))


async def _run(*command: str) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
    except FileNotFoundError:
        return False
    return await process.wait() == 0
