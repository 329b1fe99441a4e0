"""A process of `ltzd run` with the role http alone, on a real database and a served fake node."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ltzd.values import checksummed
from tests.support.chain.fake_node import LTZ_AT, OTHERS_AT
from tests.support.ports import free_port
from tests.support.secret_files import write_secret
from tests.support.told_logs import told_on_failure
from tests.support.waiting import until

START_SECONDS = 120.0
SETTINGS = """
database_url = "{database_url}"
master_key_file = "{folder}/master.key"
roles = ["http"]
[node]
rpc_url = "{node_url}"
[contracts]
ltz = "{ltz}"
perk_nft = "{perk_nft}"
points_sale = "{points_sale}"
business_escrow = "{business_escrow}"
first_block = 1
[identity]
kind = "oidc"
issuer = "https://login.invalid/"
audience = "ltzd"
"""


class Process:
    """A process of `ltzd run`."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.folder = folder
        self.process = process
        self.port = 0
        self.admin_port = 0

    def lines(self) -> list[dict[str, Any]]:
        text = (self.folder / f"{self.port}.log").read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def count(self, event: str, **facts: object) -> int:
        return len(
            [line for line in self.lines() if {"event": event, **facts}.items() <= line.items()]
        )

    async def logged(self, event: str, times: int = 1, **facts: object) -> None:
        async def is_logged() -> bool:
            assert self.process.returncode is None, (self.folder / f"{self.port}.log").read_text()
            return self.count(event, **facts) >= times

        await until(is_logged, START_SECONDS)


class Deployment:
    """A folder with a settings file for a database and a node."""

    def __init__(self, folder: Path, database_url: str, node_url: str) -> None:
        self.folder = folder
        write_secret(folder / "master.key", "ab" * 16 + "cd" * 16)
        self._names = {"folder": folder, "database_url": database_url, "node_url": node_url}
        others = ("perk_nft", "points_sale", "business_escrow")
        self._names |= dict(
            zip(("ltz", *others), map(checksummed, (LTZ_AT, *OTHERS_AT)), strict=True)
        )

    def settings(self, http: str, admin: str, port: int = 0, admin_port: int = 0) -> Path:
        drain = "" if "drain_seconds" in http else "drain_seconds = 0\n"
        public = f"[http]\nport = {port}\n{drain}{http}\n"
        text = SETTINGS + public + f"[admin]\nport = {admin_port}\n{admin}\n"
        for name, value in self._names.items():
            text = text.replace("{" + name + "}", str(value))
        return write_secret(self.folder / f"{port}.toml", text)

    @asynccontextmanager
    async def running(self, http: str, admin: str = "") -> AsyncIterator[Process]:
        """A ready process, which is stopped afterwards and must exit with 0."""
        port, admin_port = free_port(), free_port()
        config = self.settings(http, admin, port, admin_port)
        with (self.folder / f"{port}.log").open("wb") as log:
            started = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ltzd", "run", "--config", config),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        process = Process(self.folder, started)
        process.port, process.admin_port = port, admin_port
        with told_on_failure(self.folder / f"{port}.log"):
            try:
                await process.logged("ltzd.ready")
                yield process
                if started.returncode is None:
                    started.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(started.wait(), 20) == 0
            finally:
                if started.returncode is None:
                    started.kill()
                    await started.wait()
