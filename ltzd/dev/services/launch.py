"""The launcher of a service: a script that prepares its process and then executes the service.

The script begins in a session of its own, redirects the standard streams, writes the service's
record, drops root if asked, and replaces itself by the service with execv. The record holds the
process id and start time, which execv keeps, so no service ever runs without a record, whenever
ltzd is killed. The script ends with ltzd until the record is written: the next ltzd, which finds no
record, starts the service itself.

The script runs without the ltzd package. Its one argument is a JSON object with parent (the process
id of ltzd), record_path, log_path, record, and optionally uid, gid and keep_file_access.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 1 << 2
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE = 1
_REFUSED = (
    "root cannot keep its file access here; use folders that every user may enter, "
    "or start as an ordinary user"
)


def birth_of(pid: int) -> str:
    """Identify a process among those that reuse its id; empty if there is no such process.

    With /proc it is the boot id and the start time in ticks since boot, which changes of the clock
    do not affect; elsewhere it is the start time that ps prints.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        ps = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return ps.stdout.strip()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The second field is the program's name in parentheses and may itself hold spaces.
    start_ticks = stat.rpartition(")")[2].split()[19]
    return f"{boot.read_text().strip()}:{start_ticks}"


def main(plan: dict[str, Any]) -> None:
    _end_with(plan["parent"])
    os.umask(0o077)
    _redirect_streams(plan["log_path"])
    _reset_signals()
    record: dict[str, Any] = plan["record"] | {"pid": os.getpid(), "birth": birth_of(os.getpid())}
    _write_atomically(plan["record_path"], json.dumps(record))
    _outlive_parent()
    if "uid" in plan:
        _drop_root(plan["uid"], plan["gid"], plan["keep_file_access"])
    argv: list[str] = record["argv"]
    os.execv(argv[0], argv)  # noqa: S606 - no shell is the point


def _end_with(parent: int) -> None:
    """Without Linux only a parent that is gone already ends this process."""
    if sys.platform == "linux":
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("ltzd has ended")


def _outlive_parent() -> None:
    if sys.platform == "linux":
        _prctl(PR_SET_PDEATHSIG, 0)


def _redirect_streams(log_path: str) -> None:
    devnull = os.open(os.devnull, os.O_RDONLY)
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(devnull, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # Descriptors that the parent inherited (a make job server, a test's pipe) must not stay open.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _reset_signals() -> None:
    """Restore the defaults, since execv keeps ignored and blocked signals."""
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _write_atomically(path: str, text: str) -> None:
    unfinished = f"{path}.{os.getpid()}"
    with Path(unfinished).open("w") as file:
        file.write(text)
    os.replace(unfinished, path)  # noqa: PTH105 - atomic


def _drop_root(uid: int, gid: int, keep_file_access: bool) -> None:
    """Drop root; `keep_file_access` keeps access to folders that only root may enter."""
    if keep_file_access:
        _prctl(PR_SET_KEEPCAPS, 1)
        # Without it, setuid clears the capability for access(2), which initdb checks paths with.
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
