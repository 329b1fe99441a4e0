"""The first moments of a service's process, before it becomes the service itself.

Runs as a script of its own, without the package: it starts a session, points the standard streams
away from the terminal, writes the service's record, gives up root where asked, and executes the
service in its own place. The record carries this process's id and birth, which execution keeps; so
no service ever runs without a record, whenever ltzd is killed.

The plan is one JSON argument: record_path, log_path, record, and optionally uid, gid,
keep_file_access.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PR_SET_KEEPCAPS = 8
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 1 << 2
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE = 1
_REFUSED = (
    "root may not hand on its file access here, so use folders that every user may enter, "
    "or start as an ordinary user"
)


def birth_of(pid: int) -> str:
    """What tells a process from a later one with the same id; empty when there is no such process.

    Clock changes must not alter it, so it counts from the machine's start where /proc tells that.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        shown = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return shown.stdout.strip()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The second field is the program's name in parentheses and may itself hold spaces.
    start_ticks = stat.rpartition(")")[2].split()[19]
    return f"{boot.read_text().strip()}:{start_ticks}"


def main(plan: dict[str, Any]) -> None:
    os.setsid()
    os.umask(0o077)
    _leave_the_terminal(plan["log_path"])
    _default_signals()
    record: dict[str, Any] = plan["record"] | {"pid": os.getpid(), "birth": birth_of(os.getpid())}
    _write(plan["record_path"], json.dumps(record))
    if "uid" in plan:
        _become(plan["uid"], plan["gid"], plan["keep_file_access"])
    argv: list[str] = record["argv"]
    os.execv(argv[0], argv)  # noqa: S606 - no shell is the point


def _leave_the_terminal(log_path: str) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # What our parent inherited (a make job server, a test's pipe) must not stay open with us.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _default_signals() -> None:
    """An ignored signal stays ignored through an execution."""
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _write(path: str, text: str) -> None:
    unfinished = f"{path}.{os.getpid()}"
    with Path(unfinished).open("w") as file:
        file.write(text)
    os.replace(unfinished, path)  # noqa: PTH105 - one name for another, at once


def _become(uid: int, gid: int, keep_file_access: bool) -> None:
    """Drop root; `keep_file_access` keeps the right to enter folders that only root may enter."""
    if keep_file_access:
        _prctl(PR_SET_KEEPCAPS, 1)
        # Else access(2), with which initdb looks for the other programs, forgets what we keep.
        _prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if keep_file_access:
        _keep_only(CAP_DAC_OVERRIDE)


def _keep_only(capability: int) -> None:
    bit = 1 << capability
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    # Effective, permitted, inheritable: for capabilities below 32, then for those above.
    sets = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), _REFUSED)
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def _prctl(option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    if ctypes.CDLL(None, use_errno=True).prctl(option, *padded) != 0:
        raise OSError(ctypes.get_errno(), _REFUSED)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
