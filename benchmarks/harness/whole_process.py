"""One process of `ltzd run` with all roles, as in production: its services are other processes.

`ltzd dev` makes wallets, contracts and schema, and ends. Its PostgreSQL and Redis then start again,
and `ltzd sandbox` serves the outside services.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import instance
from benchmarks.harness.processes import running, until_it_listens, until_it_writes
from ltzd.dev.options import DevOptions
from ltzd.dev.services import supervisor
from ltzd.dev.services.ports import free_port
from ltzd.secret_files import write_private
from ltzd.store.database import connect

_TOP = """
database_url = "{database_url}"
redis_url = "{redis_url}"
master_key_file = "{data_dir}/master.key"
"""
_SECTIONS = """
[node]
urls = ["{rpc_url}"]
[contracts]
ltz = "{LTZ}"
perk_nft = "{PerkNFT}"
points_sale = "{PointsSale}"
business_escrow = "{BusinessEscrow}"
first_block = {first_block}
[http]
port = {port}
drain_seconds = 0
[admin]
port = {admin_port}
[operator]
minter_key_file = "{data_dir}/keys/minter"
relay_key_file = "{data_dir}/keys/operator"
"""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The services, and the settings of a process that uses them."""

    data_dir: Path
    anvil_pid: int
    database_url: str
    config: Path
    port: int


@asynccontextmanager
async def surroundings(folder: Path) -> AsyncIterator[Surroundings]:
    async with AsyncExitStack() as stack:
        anvil, rpc_url = await stack.enter_async_context(instance.anvil_of_blocks(folder))
        async with instance.on_chain(folder, anvil, rpc_url) as dev:
            dev_json, data_dir = dev.dev_json, dev.data_dir
        options = DevOptions(data_dir=data_dir, rpc_urls=(rpc_url,))
        services = await stack.enter_async_context(supervisor.running(data_dir, options))
        port = free_port()
        block = await stack.enter_async_context(_sandbox(folder, port, dev_json))
        values: dict[str, Any] = {
            **dev_json["contracts"],
            "database_url": services.database_url,
            "redis_url": services.redis_url,
            "data_dir": data_dir,
            "rpc_url": rpc_url,
            "first_block": await _first_block(services.database_url),
            "port": port,
            "admin_port": free_port(),
        }
        config = folder / "settings.toml"
        write_private(config, _TOP.format(**values) + block + _SECTIONS.format(**values))
        yield Surroundings(data_dir, anvil.pid, services.database_url, config, port)


@asynccontextmanager
async def whole_process(
    around: Surroundings, log: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    async with running(["-m", "ltzd", "run", "--config", str(around.config)], log) as process:
        await until_it_listens(process, around.port, log)
        yield process


@asynccontextmanager
async def _sandbox(folder: Path, ltzd_port: int, dev_json: dict[str, Any]) -> AsyncIterator[str]:
    """Yields the sandbox's part of a settings file."""
    data_dir, log, port = folder / "sandbox", folder / "sandbox.log", free_port()
    arguments = ["sandbox", "--data-dir", str(data_dir), "--port", str(port)]
    arguments += ["--ltzd-url", f"http://127.0.0.1:{ltzd_port}", "--rpc-url", dev_json["rpcUrl"]]
    async with running(["-m", "ltzd", *arguments], log) as process:
        yield await until_it_writes(process, data_dir / "settings.toml", log)


async def _first_block(database_url: str) -> int:
    database = await connect(database_url, "benchmark")
    try:
        first: int = await database.fetchval("SELECT first_block FROM chains")
    finally:
        await database.close()
    return first
