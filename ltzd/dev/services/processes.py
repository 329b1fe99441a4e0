"""Services as processes of their own: started, found again after a kill -9 of ltzd, stopped.

Each has a record in `<data_dir>/run/<name>.json`, written by the process itself before it becomes
the service. A record outlives its process, so that the next one gets the same port; `find_running`
answers only for a process that lives and was born when the record says, so a process id used again
is never mistaken for ours.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from ltzd.concurrency.clock import loop_time
from ltzd.dev.services import launch
from ltzd.errors import Misconfigured

POLL_SECONDS = 0.5
LAUNCH_SECONDS = 20.0
LOG_BYTES_KEPT = 16 * 1024 * 1024

# No variable of ours (LTZD_ ones hold secrets) and none that steers a service (PG*, ANVIL*).
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH")

_COMPLAINT = re.compile(r"(FATAL|PANIC|ERROR|Fatal|Error|error|panicked).*")
# Our own children: the exit code once known, None while they run.
_children: dict[int, int | None] = {}


@dataclass(frozen=True, slots=True)
class Service:
    """One running service. `variant` is what a service must share with a wanted one to be kept."""

    name: str
    pid: int
    birth: str
    port: int
    argv: tuple[str, ...]
    variant: str
    stop_signal: int
    log_path: Path
    log_offset: int
    """Where in the log, which earlier lives share, this one begins."""


@dataclass(frozen=True, slots=True)
class RunAs:
    """The user a service runs as; `keep_file_access` lets it enter folders only root may enter."""

    uid: int
    gid: int
    keep_file_access: bool


async def start(
    data_dir: Path,
    name: str,
    argv: Sequence[str],
    *,
    port: int = 0,
    variant: str = "",
    stop_signal: signal.Signals = signal.SIGTERM,
    run_as: RunAs | None = None,
) -> Service:
    """Run `argv` (an absolute path first) in a session of its own, as service `name`.

    Answers once the record is written, which is before the service listens.
    """
    log_path = _fresh_log(data_dir, name)
    plan: dict[str, object] = {
        "record_path": str(_record_path(data_dir, name)),
        "log_path": str(log_path),
        "record": {
            "name": name,
            "port": port,
            "argv": list(argv),
            "variant": variant,
            "stop_signal": int(stop_signal),
            "log_offset": _size(log_path),
            "directory": _inode(data_dir),
        },
    }
    if run_as is not None:
        plan |= {
            "uid": run_as.uid,
            "gid": run_as.gid,
            "keep_file_access": run_as.keep_file_access,
        }
    launcher = [sys.executable, "-I", "-S", launch.__file__, json.dumps(plan)]
    _record_path(data_dir, name).parent.mkdir(mode=0o700, exist_ok=True)
    # Not asyncio's subprocess: its transport kills the child when the loop goes away.
    pid = os.posix_spawn(launcher[0], launcher, _environment())  # noqa: ASYNC221 - does not wait
    _children[pid] = None
    try:
        return await _launched(data_dir, name, pid)
    except asyncio.CancelledError:
        # It may have no record yet, and then nobody would ever find it.
        _end_child(pid)
        raise


def _end_child(pid: int) -> None:
    if not _reaped(pid):
        os.kill(pid, signal.SIGKILL)
        _children[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def _launched(data_dir: Path, name: str, pid: int) -> Service:
    deadline = loop_time() + LAUNCH_SECONDS
    while loop_time() < deadline:
        ended = _reaped(pid)
        service = _read(data_dir, name)
        if service is not None and service.pid == pid:
            return service
        if ended:
            break
        await asyncio.sleep(0.01)
    raise Misconfigured(
        f"The service {name} cannot be started in {data_dir}; "
        f"see {_log_path(data_dir, name)} for the reason."
    )


def find_running(data_dir: Path, name: str) -> Service | None:
    """The service of this name that still runs, whoever started it."""
    service = _read(data_dir, name)
    return service if service is not None and is_alive(service) else None


def remembered_port(data_dir: Path, name: str) -> int | None:
    """The port this service had last, whether it runs or not."""
    service = _read(data_dir, name)
    return None if service is None or service.port == 0 else service.port


def is_alive(service: Service) -> bool:
    if _reaped(service.pid):
        return False
    if not service.birth or launch.birth_of(service.pid) != service.birth:
        return False
    if service.pid in _children:
        return True
    try:
        process = psutil.Process(service.pid)
        if process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return True
        # The first thread may end before the others, which still hold the port.
        return process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


def exit_code(service: Service) -> int | None:
    """How a service started here ended; None while it runs and for one taken back."""
    return _children.get(service.pid) if _reaped(service.pid) else None


async def until_ended(service: Service) -> None:
    """Answers when the service has ended. It may not be our child, so it is asked after."""
    while is_alive(service):  # noqa: ASYNC110 - no event tells us of a process that is not our child
        await asyncio.sleep(POLL_SECONDS)


async def ended_within(service: Service, seconds: float) -> bool:
    deadline = loop_time() + seconds
    while is_alive(service):
        if loop_time() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


async def stop(service: Service, seconds: float) -> None:
    """Ask it to end; after `seconds` end it and every process it started."""
    if not is_alive(service):
        return
    try:
        os.kill(service.pid, service.stop_signal)
    except PermissionError as error:
        raise Misconfigured(
            f"Process {service.pid} ({service.name}) belongs to another user; "
            "stop it as that user, or choose another --data-dir."
        ) from error
    except ProcessLookupError:
        return
    if await ended_within(service, seconds):
        return
    for process in _family(service):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    await ended_within(service, LAUNCH_SECONDS)


async def stop_all(data_dir: Path, seconds: float) -> None:
    """Stop every service of this data directory, all at once."""
    records = sorted((data_dir / "run").glob("*.json"))
    services = [find_running(data_dir, record.stem) for record in records]
    await asyncio.gather(*(stop(service, seconds) for service in services if service))


def failure_reason(service: Service) -> str:
    """Why it ended, in its own words: the last complaint it logged, else its last line."""
    lines = [line.strip() for line in logged(service).splitlines() if line.strip()]
    complaints = [found[0] for line in lines if (found := _COMPLAINT.search(line))]
    return (complaints or lines or ["nothing"])[-1][:300]


def logged(service: Service) -> str:
    """What the service has logged in this life, the end of it if that is long."""
    try:
        with service.log_path.open("rb") as log:
            log.seek(max(service.log_offset, _size(service.log_path) - 65_536))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def _family(service: Service) -> list[psutil.Process]:
    try:
        process = psutil.Process(service.pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _reaped(pid: int) -> bool:
    """True when `pid` was started here and has ended; a taken-back service is not."""
    if pid not in _children:
        return False
    if _children[pid] is None:
        with contextlib.suppress(ChildProcessError):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                _children[pid] = os.waitstatus_to_exitcode(status)
    return _children[pid] is not None


def _read(data_dir: Path, name: str) -> Service | None:
    try:
        record = json.loads(_record_path(data_dir, name).read_text())
        if record["directory"] != _inode(data_dir):
            return None
        return Service(
            name=str(record["name"]),
            pid=int(record["pid"]),
            birth=str(record["birth"]),
            port=int(record["port"]),
            argv=tuple(map(str, record["argv"])),
            variant=str(record["variant"]),
            stop_signal=int(record["stop_signal"]),
            log_path=_log_path(data_dir, name),
            log_offset=int(record["log_offset"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _record_path(data_dir: Path, name: str) -> Path:
    return data_dir / "run" / f"{name}.json"


def _log_path(data_dir: Path, name: str) -> Path:
    return data_dir / "logs" / f"{name}.log"


def _inode(data_dir: Path) -> int:
    """Tells a directory from its copy, which has the same records but not these services."""
    return data_dir.stat().st_ino


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _fresh_log(data_dir: Path, name: str) -> Path:
    """The log to append to; one that grew large becomes `<name>.log.old`."""
    log_path = _log_path(data_dir, name)
    log_path.parent.mkdir(mode=0o700, exist_ok=True)
    if _size(log_path) > LOG_BYTES_KEPT:
        log_path.replace(log_path.with_name(f"{name}.log.old"))
    return log_path


def _environment() -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return passed | {"LC_ALL": "C", "TZ": "UTC"}
