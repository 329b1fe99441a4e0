"""Runs `ltzd dev` as a process: starts, queries, kills, restarts and stops it.

All processes of an instance inherit its working directory, the test's temporary folder, by which
leftovers are found. On Linux, ltzd ends with the test run. The next test run ends processes that a
killed run has left.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import aiohttp
import asyncpg
import psutil

from ltzd.actions.event_handler.policy import DEFAULT_POLICY
from ltzd.dev.services import processes
from tests.support.chain.tester import Rpc
from tests.support.folders import data_parent
from tests.support.instances import fork_server
from tests.support.instances.fork_server import ForkedProcess
from tests.support.log_watch import KEYS, faults_of, secrets_in
from tests.support.ports import free_port
from tests.support.told_logs import told_on_failure
from tests.support.waiting import Stopwatch, until

START_SECONDS = 60.0
STOP_SECONDS = 10.0
_PREFIX = "ltzd-instance-"
_KEEP = "in-use"
_NO_WALLET_YET = "Identity provider unavailable"
"""The error of an event, whose status is 500, while a new wallet takes longer than it waits."""
_WELCOME = "\nltzd is ready on http"
_STOOD_STILL_SECONDS = 0.5
_SURELY_HELD_AFTER_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Answer:
    """An answer of the event handler."""

    status: int
    body: Mapping[str, Any]
    seconds: float = 0.0
    """From the request to the answer, by the tests' clock: see `steady_clock`."""

    @property
    def event_id(self) -> str:
        return str(self.body["eventId"])

    @property
    def hash(self) -> str | None:
        transaction_hash: str | None = self.body["transactionHash"]
        return transaction_hash

    def assert_timely(self) -> None:
        """Checks that the answer has the hash of the mint, for which ltzd waits some seconds.

        These may have run out while the machine stood still. By the tests' clock they then have
        not, because it stood still, too.
        """
        if self.status == 202:
            assert self.seconds < DEFAULT_POLICY.hash_wait - _STOOD_STILL_SECONDS, self.body
        else:
            assert (self.status, bool(self.hash)) == (200, True), self.body


@dataclass(frozen=True)
class OsUser:
    """The user and the interpreter that run an instance."""

    uid: int
    gid: int
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)


class Instance:
    """A data directory and the `ltzd dev` process that uses it, if one runs.

    Processes are forked from a server that has imported ltzd; with `first_by_command` the first one
    is `python -m ltzd`, and so are all of another user's.
    """

    def __init__(
        self,
        folder: Path,
        options: Sequence[str],
        http: aiohttp.ClientSession,
        os_user: OsUser | None,
        *,
        first_by_command: bool = False,
        first_checkout: Path | None = None,
    ) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.options = list(options)
        self.http = http
        self.os_user = os_user
        self.first_by_command = first_by_command
        self.first_checkout = first_checkout
        self.port = free_port()
        self.admin_port = free_port()
        self.process: asyncio.subprocess.Process | ForkedProcess | None = None
        self.dev_json: dict[str, Any] = {}
        self._stamp_before_start: tuple[int, int] | None = None
        self._output_offset = 0

    # Starting and stopping

    async def start(self, *more: str) -> None:
        """Starts the process and waits until it is ready."""
        await self.begin(*more)
        await self.ready()

    async def start_again(self) -> None:
        await self.start()

    async def begin(self, *more: str) -> None:
        """Starts the process without waiting."""
        assert not self.is_running, "the instance runs already"
        self._stamp_before_start = self._dev_json_stamp()
        own = ["--port", str(self.port), "--admin-port", str(self.admin_port)]
        own += ["--data-dir", str(self.data_dir)]
        with (self.folder / "out").open("ab") as out:
            self._output_offset = out.tell()
            arguments = ("dev", *own, *self.options, *more)
            is_first = self.process is None
            if is_first and self.first_checkout:
                self.process = await self.command(
                    *arguments, output=out, checkout=self.first_checkout
                )
            elif (is_first and self.first_by_command) or self.os_user:
                self.process = await self.command(*arguments, output=out)
            else:
                self.process = await self.forked(*arguments, output=out)

    async def forked(
        self, *arguments: str, output: IO[bytes]
    ) -> asyncio.subprocess.Process | ForkedProcess:
        """Starts `ltzd …` in the folder without the imports of a new interpreter, on Linux."""
        if sys.platform != "linux":
            return await self.command(*arguments, output=output)
        return await fork_server.spawn(arguments, self.folder, _environment(), output.fileno())

    async def command(
        self, *arguments: str, output: Any, checkout: Path | None = None
    ) -> asyncio.subprocess.Process:
        """Starts `python -m ltzd …` in the folder, as the instance's user.

        With `checkout`, the source tree of another version, it is that version's program.
        """
        os_user = self.os_user
        python = os_user.python if os_user else sys.executable
        version = {} if checkout is None else {"PYTHONPATH": str(checkout)}
        as_user: dict[str, Any] = {}
        if os_user is not None:
            as_user = {"user": os_user.uid, "group": os_user.gid, "extra_groups": []}
        return await asyncio.create_subprocess_exec(
            *(python, "-m", "ltzd", *arguments),
            cwd=self.folder,
            env=_environment() | dict(os_user.environment if os_user else {}) | version,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output if output != asyncio.subprocess.PIPE else asyncio.subprocess.PIPE,
            # A session of its own, so that Ctrl-C in the test run does not reach it.
            start_new_session=True,
            preexec_fn=_end_with_the_tests,
            **as_user,
        )

    async def ready(self, seconds: float = START_SECONDS) -> None:
        async def is_ready() -> bool:
            assert self.is_running, f"ltzd ended with {self.exit_code}:\n{self.printed()[-3000:]}"
            # dev.json is written before the welcome is printed.
            is_written = self._dev_json_stamp() not in {None, self._stamp_before_start}
            return is_written and _WELCOME in self.printed()

        await until(is_ready, seconds)
        self.dev_json = json.loads((self.data_dir / "dev.json").read_text())

    def _dev_json_stamp(self) -> tuple[int, int] | None:
        """Identifies the current dev.json, since a killed ltzd leaves its own behind."""
        try:
            stat = (self.data_dir / "dev.json").stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return stat.st_ino, stat.st_mtime_ns

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def exit_code(self) -> int | None:
        return None if self.process is None else self.process.returncode

    async def kill9(self) -> None:
        """Kills ltzd alone; its services keep running."""
        await self.end_with(signal.SIGKILL)

    async def end_with(self, number: signal.Signals) -> int:
        """Sends a signal and waits at most ten seconds; returns the exit code."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return await self.ended()

    async def ended(self, seconds: float = STOP_SECONDS) -> int:
        assert self.process is not None
        try:
            return await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            raise AssertionError(
                f"it still runs after {seconds} s:\n{self.printed()[-3000:]}"
            ) from None

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stops the process and checks exit code, output and leftovers."""
        code = await self.end_with(number)
        assert code == 0, f"exit code {code}:\n{self.printed()[-3000:]}"
        assert "\nTraceback" not in f"\n{self.printed()}", self.printed()
        self.assert_nothing_left()

    async def refused(self, *more: str) -> str:
        """Starts a process that must refuse to run; returns its sentence."""
        await self.begin(*more)
        return await self.last_sentence()

    async def last_sentence(self) -> str:
        """Waits for a failing process, checks leftovers and exit code 1, returns its sentence."""
        code = await self.ended(START_SECONDS)
        output = self.printed()
        assert code == 1, f"exit code {code}:\n{output[-3000:]}"
        assert "\nTraceback" not in f"\n{output}", output
        self.assert_nothing_left()
        (sentence,) = [line for line in output.splitlines() if line.startswith("ltzd: ")]
        return sentence

    def assert_nothing_left(self) -> None:
        left = self.processes()
        assert not left, f"left behind: {left}"

    def assert_nothing_secret_logged(self) -> None:
        """Reads the output of all processes that this instance has had.

        What `ltzd dev` prints beside its log has an example with an e-mail address.
        """
        out = self.folder / "out"
        text = out.read_text(errors="replace") if out.exists() else ""
        secrets = {*KEYS, *secrets_in(self.data_dir)}
        lines = "\n".join(line for line in text.splitlines() if line.startswith("{"))
        faults = faults_of(lines, ()) + [secret for secret in secrets if secret in text]
        assert not faults, f"in the log: {faults}"

    def processes(self) -> dict[int, str]:
        """The ids and command lines of all live processes of the folder."""
        return processes_of(self.folder)

    def service_pids(self) -> dict[str, int]:
        """The process ids of the database, cache and chain that run here."""
        services = {
            name: processes.find_running(self.data_dir, name)
            for name in ("postgres", "redis", "chain")
        }
        return {name: service.pid for name, service in services.items() if service}

    def printed(self) -> str:
        """The output of the current process."""
        with (self.folder / "out").open("rb") as out:
            out.seek(self._output_offset)
            return out.read().decode(errors="replace")

    def printed_in_all_lives(self) -> str:
        """The output of the current process and of those before it."""
        return (self.folder / "out").read_text(errors="replace")

    # Requests

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ltz(self) -> str:
        return str(self.dev_json["contracts"]["LTZ"]).lower()

    @property
    def minter(self) -> str:
        return str(self.dev_json["minter"]).lower()

    @property
    def rpc(self) -> Rpc:
        return Rpc(self.dev_json["rpcUrl"], self.http)

    async def post_event(self, email: str, **changes: object) -> Answer:
        body = {
            "brandId": self.dev_json["brand"]["brandId"],
            "eventType": "account_creation",
            "userEmail": email,
            "domain": self.dev_json["brand"]["domain"],
        } | changes
        url = f"{self.base_url}/service-api/manual-event"
        watch = Stopwatch()
        async with self.http.post(url, json=body) as reply:
            return Answer(reply.status, await reply.json(), watch.seconds())

    async def taken_event(self, email: str, **changes: object) -> Answer:
        """Posts an event, and again while it is refused because something is busy or away.

        A machine that stands still for seconds has events refused; nothing is recorded then.
        """

        async def answer() -> Answer | None:
            answer = await self.post_event(email, **changes)
            is_away = answer.status == 503 or answer.body.get("error") == _NO_WALLET_YET
            return None if is_away else answer

        taken = await until(answer)
        assert taken is not None
        return taken

    async def event(self, event_id: str) -> dict[str, Any]:
        """Reads an existing event, once nothing is busy or away any more."""
        return await self.read(f"/service-api/events/{event_id}")

    async def read(self, path: str, **headers: str) -> dict[str, Any]:
        """Reads what there is, again while the answer is 503 as on a machine that stood still."""

        async def answer() -> dict[str, Any] | None:
            async with self.http.get(f"{self.base_url}{path}", headers=headers) as reply:
                if reply.status == 503:
                    return None
                assert reply.status == 200, await reply.text()
                body: dict[str, Any] = await reply.json()
                return body

        read = await until(answer)
        assert read is not None
        return read

    async def minted(self, event_id: str, seconds: float = 60.0) -> dict[str, Any]:
        """Returns the event once its mint is indexed."""

        async def read_minted() -> dict[str, Any] | None:
            event = await self.event(event_id)
            return event if event["status"] in {"minted", "final"} else None

        minted = await until(read_minted, seconds)
        assert minted is not None
        return minted

    async def status(self) -> dict[str, Any]:
        async with self.http.get(f"http://127.0.0.1:{self.admin_port}/status") as reply:
            body: dict[str, Any] = await reply.json()
            return body

    @asynccontextmanager
    async def database(self) -> AsyncIterator[asyncpg.Connection]:
        """Opens a session under another application name than ltzd's."""
        connection = await asyncpg.connect(
            self.dev_json["databaseUrl"], server_settings={"application_name": "test"}
        )
        try:
            yield connection
        finally:
            await connection.close()

    async def ask(self, query: str, *arguments: object) -> Any:
        """Returns one value from the database."""
        async with self.database() as connection:
            return await connection.fetchval(query, *arguments)


@asynccontextmanager
async def an_instance(
    *options: str,
    os_user: OsUser | None = None,
    started: bool = True,
    first_by_command: bool = False,
    first_checkout: Path | None = None,
) -> AsyncIterator[Instance]:
    """An instance in a folder of its own; on exit its processes and files are removed.

    Its first process is the program of `first_checkout`, if that is given.

    An instance that still runs at the end of the test is stopped by SIGTERM and checked.
    """
    with a_folder(os_user, data_parent()) as folder:
        timeout = aiohttp.ClientTimeout(total=30)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            instance = Instance(
                *(folder, options, http, os_user),
                first_by_command=first_by_command,
                first_checkout=first_checkout,
            )
            with told_on_failure(folder / "out"):
                try:
                    if started:
                        await instance.start()
                    yield instance
                    if instance.is_running:
                        await instance.stop()
                    instance.assert_nothing_secret_logged()
                finally:
                    await _end(instance)


async def _end(instance: Instance) -> None:
    if instance.is_running:
        await instance.kill9()
    if instance.data_dir.exists():
        await processes.stop_all(instance.data_dir, 5.0)
    _kill(instance.processes())


@contextmanager
def a_folder(os_user: OsUser | None = None, parent: Path | None = None) -> Iterator[Path]:
    """A temporary folder, which the next test run deletes if this one is killed."""
    _delete_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    keep = os.open(folder / _KEEP, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(keep, fcntl.LOCK_EX)
    folder.chmod(0o711)
    if os_user is not None:
        os.chown(folder, os_user.uid, os_user.gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(keep)


def _delete_abandoned() -> None:
    parents = {data_parent(), Path(tempfile.gettempdir())}
    for folder in (folder for parent in parents for folder in parent.glob(f"{_PREFIX}*")):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime < _SURELY_HELD_AFTER_SECONDS:
                continue
            keep = os.open(folder / _KEEP, os.O_RDWR)
            try:
                fcntl.flock(keep, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _kill(processes_of(folder))
                shutil.rmtree(folder)
            finally:
                os.close(keep)


def processes_of(folder: Path) -> dict[int, str]:
    lines = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            line = " ".join(process.cmdline())
            if str(folder) in line or process.cwd().startswith(str(folder)):
                lines[process.pid] = line
    return lines


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("LTZD_")}


def _end_with_the_tests() -> None:
    """Has the kernel send SIGTERM when the test run ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
