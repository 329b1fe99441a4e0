"""Gives a process a fixed share of a core, by Linux's CPU controller (cgroup v1 or v2).

A process with a quota is paid the same whatever else runs, as long as the machine has that much to
spare. So the load generator and the services take nothing from the processes that are measured.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_MICROSECONDS = 10_000
"""Short, so that a process which has used its share of a period waits for a few ms."""


@contextmanager
def core_share(pid: int, share: float) -> Iterator[bool]:
    """Within the context the process gets `share` of one core. Yields False where nobody may set
    quotas: the process then runs without one.
    """
    folder = _created(f"ltzd-bench-{os.getpid()}-{pid}", share)
    if folder is None:
        yield False
        return
    _write(folder / "cgroup.procs", str(pid))
    try:
        yield True
    finally:
        if Path(f"/proc/{pid}").exists():
            _write(folder.parent / "cgroup.procs", str(pid))
        folder.rmdir()


def _created(name: str, share: float) -> Path | None:
    quota = round(_PERIOD_MICROSECONDS * share)
    try:
        if (_ROOT / "cpu" / "cgroup.procs").exists():
            folder = _ROOT / "cpu" / name
            folder.mkdir()
            _write(folder / "cpu.cfs_period_us", str(_PERIOD_MICROSECONDS))
            _write(folder / "cpu.cfs_quota_us", str(quota))
            return folder
        if "cpu" in (_ROOT / "cgroup.subtree_control").read_text().split():
            folder = _ROOT / name
            folder.mkdir()
            _write(folder / "cpu.max", f"{quota} {_PERIOD_MICROSECONDS}")
            return folder
    except OSError as error:
        print(f"  no CPU quota: {error}", flush=True)
    return None


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")
