"""Starts `python -m ltzd …` by forking a process that has imported ltzd already.

The imports take over two seconds of a core, which is most of a restart. `spawn` starts the server
at its first call; the server ends with the test run. Linux only.
"""

import asyncio
import atexit
import contextlib
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_MESSAGE_BYTES = 256 * 1024
_POLL_SECONDS = 0.01
_STOP_SECONDS = 10.0
_servers: list[socket.socket] = []


class ForkedProcess:
    """A child of the server, with the methods of `asyncio.subprocess.Process` that tests use."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self._status = status
        self._returncode: int | None = None

    @property
    def returncode(self) -> int | None:
        if self._returncode is None:
            try:
                self._returncode = int(self._status.recv(64))
            except BlockingIOError:
                return None
            self._status.close()
        return self._returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    async def wait(self) -> int:
        while self.returncode is None:  # noqa: ASYNC110 - the server tells it by a socket
            await asyncio.sleep(_POLL_SECONDS)
        return self.returncode


async def spawn(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], output: int
) -> ForkedProcess:
    """Runs `python -m ltzd ARGUMENTS` in the folder, in a session of its own.

    Both output streams go to the descriptor `output`. `environment` is for the server too, and must
    be the same in all calls.
    """
    if not _servers:
        _servers.append(_start_server(environment))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        request = {"arguments": list(arguments), "folder": str(folder)}
        message = json.dumps(request).encode()
        socket.send_fds(_servers[0], [message], [output, theirs.fileno()])
    # The first answer takes as long as the server's imports.
    pid = int(await asyncio.to_thread(ours.recv, 64))
    ours.setblocking(False)
    return ForkedProcess(pid, ours)


def _start_server(environment: Mapping[str, str]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=Path(__file__).parents[3],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def stop() -> None:
        ours.close()
        server.wait(_STOP_SECONDS)

    atexit.register(stop)
    return ours


def _serve(requests: socket.socket) -> None:
    """Forks a child for each request until the test run closes the socket."""
    # The modules that children need not import again, some of which ltzd imports at first use.
    import eth_abi  # noqa: F401, PLC0415
    import eth_account.messages  # noqa: F401, PLC0415
    import sqlalchemy.dialects.postgresql.asyncpg  # noqa: PLC0415
    import sqlalchemy.ext.asyncio  # noqa: F401, PLC0415

    import ltzd.cli.main  # noqa: PLC0415
    import ltzd.dev.main  # noqa: PLC0415
    import ltzd.store.migrations.upgrades  # noqa: F401, PLC0415

    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    statuses: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([requests.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report_ended(statuses)
        if requests.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, 2)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run(json.loads(message), descriptors[0])
            return
        os.close(descriptors[0])
        statuses[pid] = socket.socket(fileno=descriptors[1])
        statuses[pid].send(str(pid).encode())


def _report_ended(statuses: dict[int, socket.socket]) -> None:
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        # The test run may have stopped waiting for this child.
        with statuses.pop(pid) as peer, contextlib.suppress(BrokenPipeError):
            peer.send(str(os.waitstatus_to_exitcode(status)).encode())


def _run(request: Mapping[str, Any], output: int) -> None:
    """Runs the program in the child, as `python -m ltzd` does."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    os.chdir(request["folder"])
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 1024)
    sys.argv = ["ltzd", *request["arguments"]]
    runpy.run_module("ltzd", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _serve(socket.socket(fileno=int(sys.argv[1])))
