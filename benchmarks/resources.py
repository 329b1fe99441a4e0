"""What the programs of an instance use: CPU seconds and memory of ltzd and of each service."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

MIB = 1024 * 1024
LTZD = "ltzd"

Programs = Mapping[str, psutil.Process]


def programs(pid: int, data_dir: Path, anvil_pid: int) -> Programs:
    """ltzd, which is process `pid`, its node, and the services that its data directory keeps."""
    found = {LTZD: psutil.Process(pid), "anvil": psutil.Process(anvil_pid)}
    for record in sorted((data_dir / "run").glob("*.json")):
        with suppress(psutil.NoSuchProcess):
            found[record.stem] = psutil.Process(int(json.loads(record.read_bytes())["pid"]))
    return found


def cpu_seconds(those: Programs) -> dict[str, float]:
    return {name: sum(_cpu_seconds(_family(name, one))) for name, one in those.items()}


def memory_mib(those: Programs) -> dict[str, float]:
    """Resident memory; a service of many processes counts what they share once (PSS)."""
    return {name: sum(_resident(_family(name, one))) / MIB for name, one in those.items()}


def _family(name: str, process: psutil.Process) -> list[psutil.Process]:
    """A service's workers are its own; ltzd's children are the services."""
    return [process] if name == LTZD else [process, *process.children(recursive=True)]


def _cpu_seconds(family: list[psutil.Process]) -> Iterator[float]:
    for one in family:
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            yield times.user + times.system


def _resident(family: list[psutil.Process]) -> Iterator[int]:
    for one in family:
        with suppress(psutil.NoSuchProcess):
            yield one.memory_info().rss if len(family) == 1 else _proportional(one)


def _proportional(process: psutil.Process) -> int:
    try:
        size: int = process.memory_full_info().pss
    except (psutil.AccessDenied, AttributeError):
        size = process.memory_info().rss
    return size
