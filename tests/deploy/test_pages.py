"""The blocks of docs/deploy, pasted into a shell by an operator who did not write ltzd."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import psutil
import pytest
import pytest_asyncio
from sqlalchemy.exc import DBAPIError

from ltzd import __version__
from ltzd.dev.services import postgres
from ltzd.dev.services.chain import DevChain
from ltzd.errors import Misconfigured
from ltzd.store.schema_revisions import migrate
from tests.support.chain.chains import anvil_chain
from tests.support.chain.tester import ETHER
from tests.support.folders import a_data_directory
from tests.support.ports import free_port
from tests.support.services.postgres import Databases
from tests.support.told_logs import told_on_failure
from tests.support.waiting import until

__all__ = ["anvil_chain"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "deploy"
ROLES = ("http", "operator", "indexer", "deliveries")
NAME = "walk"
"""Of the database and its user: the server of the tests has others of the name ltzd."""

AS_UNDER_THE_UNIT = """
import ctypes, os, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
# The unit's MemoryDenyWriteExecute; kernels before 6.3 do not know it.
ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def blocks_of(page: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


@dataclass
class Server:
    """A folder in the place of a server's file system, with its programs first on PATH."""

    root: Path
    database_url: str
    rpc_url: str
    http_port: int

    @property
    def etc(self) -> Path:
        return self.root / "etc" / "ltzd"

    @property
    def units(self) -> Path:
        return self.root / "etc" / "systemd" / "system"

    def prepare(self) -> None:
        for folder in ("programs", "installed", "opt", "etc/systemd/system", "root/ltzd"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "root" / "ltzd" / "config").symlink_to(ROOT / "config")
        for name in ("useradd", "chown", "systemctl"):
            self._program(f"programs/{name}", f'echo "{name} $*" >>{self.root}/log')
        database = urlsplit(self.database_url)
        self._program(
            "programs/runuser",
            'while [ "$1" != -- ]; do shift; done; shift\n'
            f"[ $1 != psql ] || export PGHOST={database.hostname} PGPORT={database.port}\n"
            f"[ $1 != psql ] || export PGUSER={database.username} PGPASSWORD={database.password}\n"
            'exec "$@"',
        )
        self._program("programs/psql", f'exec {postgres._program("psql")} "$@"')
        # Here an environment is complete at once; test_packages.py installs the wheel in one.
        self._program("programs/python3", f'mkdir "$3" && cp -R {self.root}/installed "$3/bin"')
        self._program("installed/pip", "exit 0")
        (self.root / "ltzd.py").write_text(AS_UNDER_THE_UNIT)
        self._program(
            "installed/ltzd", f'exec {sys.executable} {self.root}/ltzd.py -P -m ltzd "$@"'
        )

    def _program(self, name: str, script: str) -> None:
        path = self.root / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def here(self, text: str) -> str:
        """The block with this machine's folders, ports and values."""
        for place in ("/etc/ltzd", "/opt/ltzd", "/root/ltzd", "/etc/systemd"):
            text = re.sub(rf"(?<![\w.]){place}\b", f"{self.root}{place}", text)
        database = urlsplit(self.database_url)
        return (
            text.replace("https://node.example", self.rpc_url)
            .replace("CHAIN=11155111", "CHAIN=31337")
            .replace("127.0.0.1:5432:ltzd:ltzd:", f"127.0.0.1:{database.port}:{NAME}:{NAME}:")
            .replace("ltzd@127.0.0.1:5432/ltzd", f"{NAME}@127.0.0.1:{database.port}/{NAME}")
            .replace("ROLE ltzd", f"ROLE {NAME}")
            .replace("DATABASE ltzd OWNER ltzd", f"DATABASE {NAME} OWNER {NAME}")
            .replace("127.0.0.1:8000", f"127.0.0.1:{self.http_port}")
            .replace('redis_url = "redis://127.0.0.1:6379/0"\n', "")
        )

    def text_of(self, path: str) -> str:
        return Path(self.here(path)).read_text()

    def environment(self) -> dict[str, str]:
        path = f"{self.root}/programs{os.pathsep}{os.environ['PATH']}"
        return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}

    async def fund(self, wallets: list[str]) -> None:
        """In the place of a faucet."""
        async with aiohttp.ClientSession() as client:
            for wallet in wallets:
                body = {"jsonrpc": "2.0", "id": 1, "method": "anvil_setBalance"}
                parameters = {"params": [wallet, hex(ETHER // 10)]}
                async with client.post(self.rpc_url, json=body | parameters) as answer:
                    assert "error" not in await answer.json()

    async def is_listening(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.http_port)
        except OSError:
            return False
        writer.close()
        return True

    def started(self) -> list[str]:
        """The units that `systemctl enable --now` named."""
        log = (self.root / "log").read_text().splitlines()
        (line,) = [line for line in log if line.startswith("systemctl enable --now ")]
        return line.split()[3:]

    @asynccontextmanager
    async def running(self, role: str, admin_port: int) -> AsyncIterator[None]:
        """The process of ltzd@ROLE as systemd runs it, with an admin port that is free here."""
        unit = (self.units / "ltzd@.service").read_text()
        (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        (file,) = re.findall(r"^EnvironmentFile=(.*)$", unit, re.MULTILINE)
        text = self.text_of(file.replace("%i", role))
        variables = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
        assert variables.keys() == {"LTZD_ADMIN__PORT"}
        own = {"LTZD_ADMIN__PORT": str(admin_port), "LTZD_HTTP__PORT": str(self.http_port)}
        with (self.root / f"{role}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(self.here(command.replace("%i", role))),
                cwd=self.etc,
                env=self.environment() | own,
                stdout=log,
                stderr=log,
            )
        with told_on_failure(self.root / f"{role}.log"):
            try:
                yield
            finally:
                with suppress(ProcessLookupError):
                    process.terminate()
                await asyncio.wait_for(process.wait(), timeout=60)
        assert process.returncode == 0, (self.root / f"{role}.log").read_text()


@pytest_asyncio.fixture
async def server(tmp_path: Path, anvil_chain: DevChain) -> AsyncIterator[Server]:
    async with a_data_directory() as folder:
        # `ltzd run` refuses the tests' shared server, which survives no power failure.
        database = await postgres.start(folder)
        server = Server(tmp_path, database.url, anvil_chain.rpc_url, free_port())
        server.prepare()
        yield server


class Shell:
    """One shell for all blocks; it ends at the first command that fails."""

    def __init__(self, server: Server, process: asyncio.subprocess.Process) -> None:
        self._server = server
        self._process = process
        self._count = 0

    async def paste(self, block: str) -> str:
        """Returns the standard output."""
        self._count += 1
        file = self._server.root / f"block{self._count}"
        file.write_text(self._server.here(block))
        mark = f"end of block {self._count}\n".encode()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f". {file}\necho '{mark.decode().strip()}'\n".encode())
        lines: list[bytes] = []
        while not lines or not lines[-1].endswith(mark):
            line = await self._line(self._process.stdout)
            assert line, f"{block}\n{(self._server.root / 'shell.log').read_text()}"
            lines.append(line)
        return b"".join(lines).removesuffix(mark).decode()

    async def _line(self, output: asyncio.StreamReader) -> bytes:
        """Waits for the next line as long as the shell's programs work, however slowly."""
        worked = -1.0
        while True:
            try:
                async with asyncio.timeout(60):
                    return await output.readline()
            except TimeoutError:
                before, worked = worked, cpu_seconds(self._process.pid)
                assert worked > before, "the shell waits for something"


def cpu_seconds(pid: int) -> float:
    """The seconds of a core that a process, and all that it has started, have used."""
    used = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                used += sum(each.cpu_times()[:4])
    return used


@asynccontextmanager
async def a_shell(server: Server) -> AsyncIterator[Shell]:
    with (server.root / "shell.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *("bash", "-eu"),
            cwd=server.root,
            env=server.environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    try:
        yield Shell(server, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def test_once_the_secrets_belong_to_ltzd_no_command_reads_them_as_root() -> None:
    """ltzd refuses secrets of another user, whom the other tests of this page do not have."""
    _, chown, after = "\n".join(blocks_of("test-network.md")).partition("chown -R ltzd: /etc/ltzd")
    assert chown
    lines = [line for line in after.splitlines() if "/bin/ltzd " in line and "--config" in line]
    assert len(lines) == 2
    assert [line for line in lines if not line.startswith("runuser -u ltzd -- ")] == []


async def test_eight_blocks_lead_from_nothing_to_the_first_mint(server: Server) -> None:
    values, install, database, keys, settings, contracts, start, brand, event = blocks_of(
        "test-network.md"
    )
    async with AsyncExitStack() as stack:
        shell = await stack.enter_async_context(a_shell(server))
        for block in (values, install, database):
            await shell.paste(block)
        wallets = re.findall(r"^0x\w{40}$", await shell.paste(keys), re.MULTILINE)
        assert len(wallets) == 3
        await server.fund(wallets)
        await shell.paste(settings)
        await shell.paste(contracts)
        await shell.paste(start)
        units = [unit for unit in server.started() if unit.startswith("ltzd@")]
        assert units == [f"ltzd@{role}" for role in ROLES]
        admin_ports = [free_port() for _ in ROLES]
        for role, port in zip(ROLES, admin_ports, strict=True):
            await stack.enter_async_context(server.running(role, port))
        await until(server.is_listening, 300.0)
        await shell.paste(brand)
        answer = json.loads(await shell.paste(event))
        assert answer["success"]
        client = await stack.enter_async_context(aiohttp.ClientSession())
        place = f"http://127.0.0.1:{server.http_port}/service-api/events/{answer['eventId']}"

        async def is_minted() -> bool:
            async with client.get(place) as response:
                return (await response.json())["status"] in {"minted", "final"}

        async def are_ready() -> bool:
            urls = [f"http://127.0.0.1:{port}/readyz" for port in admin_ports]
            return [(await client.get(url)).status for url in urls] == [200] * len(ROLES)

        await until(is_minted)
        assert [path.name for path in server.etc.iterdir() if path.stat().st_mode & 0o077] == []
        await until(are_ready)


def test_an_upgrade_replaces_the_version_that_the_walk_installed(tmp_path: Path) -> None:
    """`ln -sfn` puts the link into a folder that is no link, and the old version stays in use."""
    server = Server(tmp_path, "postgresql://127.0.0.1/none", "http://127.0.0.1:1", 0)
    server.prepare()
    _, install, *_ = blocks_of("test-network.md")
    upgrade = blocks_of("production.md")[-1]

    for block in (install, upgrade):
        subprocess.run(
            ["bash", "-euc", server.here(block)], env=server.environment(), check=True, timeout=60
        )

    program = (tmp_path / "opt" / "ltzd" / "bin" / "ltzd").resolve(strict=True)
    assert program == tmp_path / "opt" / "ltzd-0.2.0" / "bin" / "ltzd"
    assert f"/opt/ltzd-{__version__} /opt/ltzd\n" in install


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.md")))
def test_every_block_is_a_script_that_a_shell_can_read(page: str) -> None:
    for block in blocks_of(page):
        done = subprocess.run(
            ["bash", "-n"], input=block, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_every_link_leads_to_a_page_and_a_heading() -> None:
    broken = []
    for page in sorted(PAGES.glob("*.md")):
        for place in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
            name, _, anchor = place.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                broken.append(f"{page.name}: {place}")
    assert broken == []


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


async def test_the_grants_let_ltzd_make_its_tables_in_the_database_of_another_user(
    databases: Databases,
) -> None:
    _, grants = re.findall(r"```sql\n(.*?)```", (PAGES / "production.md").read_text(), re.DOTALL)
    url = urlsplit(databases.url_of("postgres"))
    owner = await asyncpg.connect(url.geturl())
    try:
        await owner.execute("CREATE ROLE guest LOGIN PASSWORD 'secret'")
        await owner.execute("CREATE DATABASE of_another")
        guest = url._replace(netloc=f"guest:secret@{url.hostname}:{url.port}", path="/of_another")
        with pytest.raises((Misconfigured, DBAPIError), match="public"):
            await migrate(guest.geturl())
        inside = await asyncpg.connect(url._replace(path="/of_another").geturl())
        here = grants.replace("DATABASE ltzd", "DATABASE of_another")
        await inside.execute(here.replace("TO ltzd", "TO guest"))
        await inside.close()
        await migrate(guest.geturl())
    finally:
        await owner.execute("DROP DATABASE IF EXISTS of_another WITH (FORCE)")
        await owner.execute("DROP ROLE IF EXISTS guest")
        await owner.close()
