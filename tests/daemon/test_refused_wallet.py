"""A process of `ltzd run` whose wallet has another past serves on, and says what to do."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest_asyncio

from ltzd.store.schema_revisions import migrate
from ltzd.values import checksummed
from tests.support.chain.fake_node import LTZ_AT, OTHERS_AT, FakeNode
from tests.support.commands import Outcome, ltzd
from tests.support.ports import free_port
from tests.support.rows.core import MINTER
from tests.support.secret_files import write_secret
from tests.support.services.postgres import Databases, a_postgres
from tests.support.surfaces.event_surface import a_served_node
from tests.support.waiting import until

WALLET = checksummed(MINTER.address)
SETTINGS = """
database_url = "{database_url}"
master_key_file = "{folder}/master.key"
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
[operator]
minter_key_file = "{folder}/minter.key"
relay_key_file = "{folder}/relay.key"
[http]
drain_seconds = 0
port = {port}
[admin]
port = {admin_port}
"""


@pytest_asyncio.fixture(scope="session")
async def databases() -> AsyncIterator[Databases]:
    """A server that loses nothing in a power failure: `ltzd run` refuses another one."""
    async with a_postgres(prepare=migrate, settings={}) as databases:
        yield databases


class Deployment:
    def __init__(self, folder: Path, database_url: str, node_url: str) -> None:
        write_secret(folder / "master.key", "ab" * 16 + "cd" * 16)
        write_secret(folder / "minter.key", "01" * 32)
        write_secret(folder / "relay.key", "02" * 32)
        self.port, self.admin_port = free_port(), free_port()
        others = ("perk_nft", "points_sale", "business_escrow")
        names = {"folder": folder, "database_url": database_url, "node_url": node_url}
        names |= {"port": self.port, "admin_port": self.admin_port}
        names |= dict(zip(("ltz", *others), map(checksummed, (LTZ_AT, *OTHERS_AT)), strict=True))
        text = SETTINGS
        for name, shown in names.items():
            text = text.replace("{" + name + "}", str(shown))
        self.config = write_secret(folder / "ltzd.toml", text)
        self.log = folder / "ltzd.log"

    async def ask(self, port: int, path: str) -> str:
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}{path}") as answer:
            return await answer.text()

    async def reasons(self) -> list[str]:
        try:
            return list(json.loads(await self.ask(self.admin_port, "/readyz"))["reasons"])
        except aiohttp.ClientError:
            return ["not reachable"]

    async def command(self, *arguments: object) -> Outcome:
        return await ltzd(*arguments, "--config", self.config)


@asynccontextmanager
async def running(deployment: Deployment) -> AsyncIterator[None]:
    with deployment.log.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ltzd", "run", "--config", deployment.config),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_an_empty_database_with_a_used_wallet_serves_on_until_a_person_adopts_the_wallet(
    tmp_path: Path, database_url: str
) -> None:
    node = FakeNode()
    node.mine()
    for _ in range(3):
        node.use_nonce(MINTER)
    async with a_served_node(node) as node_url:
        deployment = Deployment(tmp_path, database_url, node_url)
        async with running(deployment):
            await until(lambda: _refuses(deployment), 30.0)
            reasons = await deployment.reasons()
            (reason,) = [each for each in reasons if each.startswith("Lane mint")]
            assert f"run `ltzd lane adopt {WALLET}`" in reason
            assert "which has used 3 nonces on chain" in reason
            status = await ltzd(
                "status", "--admin-url", f"http://127.0.0.1:{deployment.admin_port}"
            )
            assert "ltzd lane adopt" in " ".join(status.out.split())
            assert f"ltzd lane adopt {WALLET}" in deployment.log.read_text()
            health = json.loads(await deployment.ask(deployment.port, "/service-api/health"))
            assert health, "HTTP goes on"

            done = await deployment.command("lane", "adopt", WALLET, "--yes", "--watch-seconds", 0)
            assert done.code == 0, done.err
            assert "its lane continues at nonce 3" in done.out
            await until(lambda: _is_ready(deployment), 40.0)
            check = await deployment.command("restore", "check")
            assert check.code == 0, check.out + check.err


async def _refuses(deployment: Deployment) -> bool:
    return any("ltzd lane adopt" in reason for reason in await deployment.reasons())


async def _is_ready(deployment: Deployment) -> bool:
    return await deployment.reasons() == []
