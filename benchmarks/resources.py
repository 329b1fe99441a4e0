"""What the programs of an instance use: CPU seconds and memory of ltzd and of each service."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

MIB = 1024 * 1024
LTZD = "ltzd"


def programs(pid: int, data_dir: Path) -> dict[str, psutil.Process]:
    """ltzd, which is process `pid`, and the services that it keeps in its data directory."""
    found = {LTZD: psutil.Process(pid)}
    for record in sorted((data_dir / "run").glob("*.json")):
        with suppress(psutil.NoSuchProcess):
            found[record.stem] = psutil.Process(int(json.loads(record.read_bytes())["pid"]))
    return found


def cpu_seconds(those: Mapping[str, psutil.Process]) -> dict[str, float]:
    """With the children's, living and ended: PostgreSQL works in children only."""
    return {name: sum(_cpu_seconds(process)) for name, process in those.items()}


def _cpu_seconds(process: psutil.Process) -> Iterator[float]:
    own = process.cpu_times()
    yield from (own.user, own.system, own.children_user, own.children_system)
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            yield times.user + times.system


def memory_mib(those: Mapping[str, psutil.Process]) -> dict[str, float]:
    """Resident memory; a service with children counts what they share once (PSS, where known)."""
    return {name: sum(_resident(process)) / MIB for name, process in those.items()}


def _resident(process: psutil.Process) -> Iterator[int]:
    children = process.children(recursive=True)
    for one in (process, *children):
        with suppress(psutil.NoSuchProcess):
            yield _proportional(one) if children else one.memory_info().rss


def _proportional(process: psutil.Process) -> int:
    try:
        size: int = process.memory_full_info().pss
    except (psutil.AccessDenied, AttributeError):
        size = process.memory_info().rss
    return size
