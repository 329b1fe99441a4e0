"""Starts services as processes that survive ltzd, finds them again, and stops them.

Each service has a record in `<data_dir>/run/<name>.json`, which its process writes before it
becomes the service. A record outlives its process, so that the next process can use the same port.
`find_running` compares the process's start time with the record's, so a reused process id is never
taken for the service.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

from ltzd.concurrency.clock import loop_time
from ltzd.dev.services import launch
from ltzd.errors import Misconfigured

POLL_SECONDS = 0.5
LAUNCH_SECONDS = 20.0
STOP_SECONDS = 8.0
LOG_BYTES_KEPT = 16 * 1024 * 1024

# Leaves out LTZD_* variables, which hold secrets, and variables that configure services (PG*).
_INHERITED_VARIABLES = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH")

_ERROR_LINE = re.compile(r"(FATAL|PANIC|ERROR|Fatal|Error|error|panicked).*")
_FULL_DISK = "No space left on device"
# The exit code of each child of this process, or None while the child runs.
_children: dict[int, int | None] = {}


class Service(msgspec.Struct, frozen=True):
    """A service's process; one whose `variant` differs from the requested one is replaced."""

    name: str
    pid: int
    birth: str
    port: int
    argv: tuple[str, ...]
    variant: str
    stop_signal: int
    log_path: Path
    log_offset: int
    """The size of the log, which earlier processes share, when this process started."""


class RunAs(msgspec.Struct, frozen=True):
    """The user of a service; `keep_file_access` lets it enter folders that only root may enter."""

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

    Returns once the record is written, which is before the service listens. Raises Misconfigured.
    """
    log_path = _rotated_log(data_dir, name)
    plan: dict[str, object] = {
        "parent": os.getpid(),
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
    # Not as ASCII: thus paths in the locale's encoding reach the launcher as their bytes.
    arguments = json.dumps(plan, ensure_ascii=False)
    launcher = [sys.executable, "-I", "-S", launch.__file__, arguments]
    _record_path(data_dir, name).parent.mkdir(mode=0o700, exist_ok=True)
    # Not asyncio's subprocess, whose transport kills the child when the loop is closed. The session
    # begins here, so that Ctrl-C never reaches the launcher.
    pid = os.posix_spawn(  # noqa: ASYNC221 - does not wait
        launcher[0], launcher, _environment(), setsid=True
    )
    _children[pid] = None
    try:
        return await _wait_for_record(data_dir, name, pid)
    except asyncio.CancelledError:
        # Without a record the process could never be found again.
        _kill_child(pid)
        raise


def _kill_child(pid: int) -> None:
    if not _reaped(pid):
        os.kill(pid, signal.SIGKILL)
        _children[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def _wait_for_record(data_dir: Path, name: str, pid: int) -> Service:
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
    """Return the service if its process runs, also if an earlier ltzd started it."""
    service = _read(data_dir, name)
    return service if service is not None and is_alive(service) else None


def remembered_port(data_dir: Path, name: str) -> int | None:
    """The port of the service's last process, whether it runs or not."""
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
        # The main thread may end before others, which still hold the port.
        return process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


def exit_code(service: Service) -> int | None:
    """Return the exit code of an ended child of this process, else None."""
    return _children.get(service.pid) if _reaped(service.pid) else None


async def until_ended(service: Service) -> None:
    """Return once the service has ended; polls, since it may not be a child of this process."""
    while is_alive(service):  # noqa: ASYNC110 - there is no event for another process's child
        await asyncio.sleep(POLL_SECONDS)


async def ended_within(service: Service, seconds: float) -> bool:
    deadline = loop_time() + seconds
    while is_alive(service):
        if loop_time() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


async def stop(service: Service, seconds: float = STOP_SECONDS) -> None:
    """Send the stop signal; after `seconds` kills the process and all its descendants."""
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
    for process in _process_tree(service):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    await ended_within(service, LAUNCH_SECONDS)


async def stop_all(data_dir: Path, seconds: float = STOP_SECONDS) -> None:
    """Stop all services of the data directory concurrently."""
    records = sorted((data_dir / "run").glob("*.json"))
    services = [find_running(data_dir, record.stem) for record in records]
    await asyncio.gather(*(stop(service, seconds) for service in services if service))


def failure_reason(service: Service) -> str:
    """The last error that the process logged, else its last line; at most 300 characters.

    A full disk is the reason, whatever else fails because of it.
    """
    lines = [line.strip() for line in log_text(service).splitlines() if line.strip()]
    errors = [match[0] for line in lines if (match := _ERROR_LINE.search(line))]
    full = [error for error in errors if _FULL_DISK in error]
    return (full or errors or lines or ["an empty log"])[-1][:300]


def log_text(service: Service) -> str:
    """The log of this process, at most its last 64 KiB."""
    try:
        with service.log_path.open("rb") as log:
            log.seek(max(service.log_offset, _size(service.log_path) - 65_536))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def _process_tree(service: Service) -> list[psutil.Process]:
    try:
        process = psutil.Process(service.pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _reaped(pid: int) -> bool:
    """Whether `pid` is a child of this process that has ended; False for adopted services."""
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
    """Distinguishes the directory from a copy, which has the same records but no services."""
    return data_dir.stat().st_ino


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _rotated_log(data_dir: Path, name: str) -> Path:
    """Return the log to append to, after renaming a large one to `<name>.log.old`."""
    log_path = _log_path(data_dir, name)
    log_path.parent.mkdir(mode=0o700, exist_ok=True)
    if _size(log_path) > LOG_BYTES_KEPT:
        log_path.replace(log_path.with_name(f"{name}.log.old"))
    return log_path


def _environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    return inherited | {"LC_ALL": "C", "TZ": "UTC"}
