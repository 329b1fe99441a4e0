"""CPU seconds and memory of an instance's programs: ltzd and each service."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

MIB = 1024 * 1024
LTZD = "ltzd"

Programs = Mapping[str, psutil.Process]


def programs(pid: int, data_dir: Path, anvil_pid: int) -> Programs:
    """Returns ltzd, which is process `pid`, its node, and the services of its data directory."""
    processes_by_name = {LTZD: psutil.Process(pid), "anvil": psutil.Process(anvil_pid)}
    for record in sorted((data_dir / "run").glob("*.json")):
        with suppress(psutil.NoSuchProcess):
            processes_by_name[record.stem] = psutil.Process(
                int(json.loads(record.read_bytes())["pid"])
            )
    return processes_by_name


def cpu_seconds(programs: Programs) -> dict[str, float]:
    return {
        name: sum(_process_cpu_seconds(_family(name, process)))
        for name, process in programs.items()
    }


def memory_mib(programs: Programs) -> dict[str, float]:
    """Resident memory; memory shared by a service's processes counts once (PSS)."""
    return {
        name: sum(_resident(_family(name, process))) / MIB for name, process in programs.items()
    }


def _family(name: str, process: psutil.Process) -> list[psutil.Process]:
    """The processes of a program; ltzd's children are left out, as they are the services."""
    return [process] if name == LTZD else [process, *process.children(recursive=True)]


def _process_cpu_seconds(family: list[psutil.Process]) -> Iterator[float]:
    for process in family:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            yield times.user + times.system


def _resident(family: list[psutil.Process]) -> Iterator[int]:
    for process in family:
        with suppress(psutil.NoSuchProcess):
            yield process.memory_info().rss if len(family) == 1 else _proportional(process)


def _proportional(process: psutil.Process) -> int:
    try:
        size: int = process.memory_full_info().pss
    except (psutil.AccessDenied, AttributeError):
        size = process.memory_info().rss
    return size
