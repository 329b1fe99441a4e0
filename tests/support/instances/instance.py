"""A whole `ltzd dev` as a process of its own: started, spoken to, killed, started again, stopped.

Everything that it starts inherits its working directory, the test's temporary folder, so whatever
is left behind can be found there. ltzd itself ends with the test run (Linux); what outlives a
killed run is ended by the next one.
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
from typing import Any

import aiohttp
import asyncpg
import psutil

from ltzd.dev.services import ports, processes
from tests.support.chain.tester import Rpc
from tests.support.waiting import until

START_SECONDS = 60.0
STOP_SECONDS = 10.0
_PREFIX = "ltzd-instance-"
_KEEP = "in-use"
_SURELY_HELD_AFTER_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Answer:
    """What the event handler answered."""

    status: int
    body: Mapping[str, Any]

    @property
    def event_id(self) -> str:
        return str(self.body["eventId"])

    @property
    def hash(self) -> str | None:
        found: str | None = self.body["transactionHash"]
        return found


@dataclass(frozen=True)
class Account:
    """Who runs the instance, and with which interpreter; None is the tester himself."""

    uid: int
    gid: int
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)


class Instance:
    """One data directory and, at times, one `ltzd dev` process that holds it."""

    def __init__(
        self,
        folder: Path,
        options: Sequence[str],
        http: aiohttp.ClientSession,
        account: Account | None,
    ) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.options = list(options)
        self.http = http
        self.account = account
        self.port = ports.free_port()
        self.admin_port = ports.free_port()
        self.process: asyncio.subprocess.Process | None = None
        self.dev_json: dict[str, Any] = {}
        self._stamp_before_start: tuple[int, int] | None = None
        self._life_begins_at = 0

    # Its life

    async def start(self, *more: str) -> None:
        """Start it and wait until it is ready."""
        await self.begin(*more)
        await self.ready()

    async def start_again(self) -> None:
        await self.start()

    async def begin(self, *more: str) -> None:
        """Start the process without waiting for anything."""
        assert not self.is_running, "it runs already"
        self._stamp_before_start = self._dev_json_stamp()
        own = ["--port", str(self.port), "--admin-port", str(self.admin_port)]
        own += ["--data-dir", str(self.data_dir)]
        with (self.folder / "out").open("ab") as out:
            self._life_begins_at = out.tell()
            self.process = await self.command("dev", *own, *self.options, *more, output=out)

    async def command(self, *arguments: str, output: Any) -> asyncio.subprocess.Process:
        """`python -m ltzd …` in the folder, as the instance's user."""
        account = self.account
        python = account.python if account else sys.executable
        as_user: dict[str, Any] = {}
        if account is not None:
            as_user = {"user": account.uid, "group": account.gid, "extra_groups": []}
        return await asyncio.create_subprocess_exec(
            *(python, "-m", "ltzd", *arguments),
            cwd=self.folder,
            env=_environment() | dict(account.environment if account else {}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output if output != asyncio.subprocess.PIPE else asyncio.subprocess.PIPE,
            # A session of its own: Ctrl-C at the tests must not stop it on its own account.
            start_new_session=True,
            preexec_fn=_end_with_the_tests,
            **as_user,
        )

    async def ready(self, seconds: float = START_SECONDS) -> None:
        async def there() -> bool:
            assert self.is_running, f"it ended with {self.exit_code}:\n{self.said()[-3000:]}"
            return self._dev_json_stamp() not in {None, self._stamp_before_start}

        await until(there, seconds)
        self.dev_json = json.loads((self.data_dir / "dev.json").read_text())

    def _dev_json_stamp(self) -> tuple[int, int] | None:
        """What tells one dev.json from another: a killed ltzd leaves its own behind."""
        try:
            found = (self.data_dir / "dev.json").stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_mtime_ns

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def exit_code(self) -> int | None:
        return None if self.process is None else self.process.returncode

    async def kill9(self) -> None:
        """Kill ltzd alone; its services run on."""
        await self.end_with(signal.SIGKILL)

    async def end_with(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end: ten seconds at most. Answers the exit code."""
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
                f"it still runs after {seconds} s:\n{self.said()[-3000:]}"
            ) from None

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop it as a person would, and hold it to what it promises."""
        code = await self.end_with(number)
        assert code == 0, f"exit code {code}:\n{self.said()[-3000:]}"
        assert "\nTraceback" not in f"\n{self.said()}", self.said()
        self.assert_nothing_left()

    async def refused(self, *more: str) -> str:
        """Start it in vain; answers the one sentence that it says about that."""
        await self.begin(*more)
        return await self.last_sentence()

    async def last_sentence(self) -> str:
        """Why it ends by itself, which leaves no process and exit code 1."""
        code = await self.ended(START_SECONDS)
        said = self.said()
        assert code == 1, f"exit code {code}:\n{said[-3000:]}"
        assert "\nTraceback" not in f"\n{said}", said
        self.assert_nothing_left()
        (sentence,) = [line for line in said.splitlines() if line.startswith("ltzd: ")]
        return sentence

    def assert_nothing_left(self) -> None:
        left = self.processes()
        assert not left, f"left behind: {left}"

    def processes(self) -> dict[int, str]:
        """Process ids and command lines of all that has to do with the folder and lives."""
        return processes_of(self.folder)

    def service_pids(self) -> dict[str, int]:
        """Database, cache and chain, as far as they run here."""
        found = {
            name: processes.find_running(self.data_dir, name)
            for name in ("postgres", "redis", "chain")
        }
        return {name: service.pid for name, service in found.items() if service}

    def said(self) -> str:
        """What it has printed in this life."""
        with (self.folder / "out").open("rb") as out:
            out.seek(self._life_begins_at)
            return out.read().decode(errors="replace")

    # What one can ask it

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
        async with self.http.post(url, json=body) as reply:
            return Answer(reply.status, await reply.json())

    async def event(self, event_id: str) -> dict[str, Any]:
        """GET of an event that is there."""
        url = f"{self.base_url}/service-api/events/{event_id}"
        async with self.http.get(url) as reply:
            assert reply.status == 200, await reply.text()
            found: dict[str, Any] = await reply.json()
            return found

    async def minted(self, event_id: str, seconds: float = 10.0) -> dict[str, Any]:
        """The event once its mint is indexed."""

        async def look() -> dict[str, Any] | None:
            found = await self.event(event_id)
            return found if found["status"] in {"minted", "final"} else None

        found = await until(look, seconds)
        assert found is not None
        return found

    async def status(self) -> dict[str, Any]:
        async with self.http.get(f"http://127.0.0.1:{self.admin_port}/status") as reply:
            found: dict[str, Any] = await reply.json()
            return found

    @asynccontextmanager
    async def database(self) -> AsyncIterator[asyncpg.Connection]:
        """A session that nothing takes for one of ltzd's own."""
        connection = await asyncpg.connect(
            self.dev_json["databaseUrl"], server_settings={"application_name": "test"}
        )
        try:
            yield connection
        finally:
            await connection.close()

    async def ask(self, query: str, *arguments: object) -> Any:
        """One value out of the database."""
        async with self.database() as connection:
            return await connection.fetchval(query, *arguments)


@asynccontextmanager
async def an_instance(
    *options: str, account: Account | None = None, started: bool = True
) -> AsyncIterator[Instance]:
    """An instance in a folder of its own; afterwards nothing of it runs or lies about.

    A test that says nothing of the end has its instance stopped by SIGTERM and checked.
    """
    with a_folder(account) as folder:
        timeout = aiohttp.ClientTimeout(total=30)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            instance = Instance(folder, options, http, account)
            try:
                if started:
                    await instance.start()
                yield instance
                if instance.is_running:
                    await instance.stop()
            finally:
                await _end(instance)


async def _end(instance: Instance) -> None:
    if instance.is_running:
        await instance.kill9()
    if instance.data_dir.exists():
        await processes.stop_all(instance.data_dir, 5.0)
    _kill(instance.processes())


@contextmanager
def a_folder(account: Account | None = None) -> Iterator[Path]:
    """A folder that the next test run tidies away if this one is killed."""
    _tidy()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    keep = os.open(folder / _KEEP, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(keep, fcntl.LOCK_EX)
    folder.chmod(0o711)
    if account is not None:
        os.chown(folder, account.uid, account.gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(keep)


def _tidy() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
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
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            line = " ".join(process.cmdline())
            if str(folder) in line or process.cwd().startswith(str(folder)):
                found[process.pid] = line
    return found


def _kill(those: Iterable[int]) -> None:
    for pid in those:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("LTZD_")}


def _end_with_the_tests() -> None:
    """The kernel sends SIGTERM when the test run dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
