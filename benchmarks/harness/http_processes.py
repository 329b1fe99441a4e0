"""Processes of `ltzd run` with the role http, on the database, Redis and node of an instance."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.instance import Instance
from benchmarks.harness.processes import running, until_it_listens
from ltzd.dev.services.ports import free_port
from ltzd.secret_files import write_private
from ltzd.store.database import connect

_SETTINGS = """
database_url = "{database_url}"
redis_url = "{redis_url}"
master_key_file = "{data_dir}/master.key"
roles = ["http"]
[node]
rpc_url = "{rpc_url}"
[contracts]
ltz = "{LTZ}"
perk_nft = "{PerkNFT}"
points_sale = "{PointsSale}"
business_escrow = "{BusinessEscrow}"
first_block = {first_block}
[identity]
kind = "oidc"
issuer = "https://login.invalid/"
audience = "ltzd"
[http]
port = {port}
drain_seconds = 0
[admin]
port = {admin_port}
"""


@dataclass(frozen=True, slots=True)
class HttpProcess:
    pid: int
    port: int


@asynccontextmanager
async def an_http_process(ltzd: Instance, folder: Path) -> AsyncIterator[HttpProcess]:
    """Serves the instance's brands and users. Users must exist: no identity provider answers."""
    port, admin_port = free_port(), free_port()
    dev = ltzd.dev_json
    database = await connect(dev["databaseUrl"], "benchmark")
    try:
        first_block = await database.fetchval("SELECT first_block FROM chains")
    finally:
        await database.close()
    config, log = folder / f"{port}.toml", folder / f"{port}.log"
    text = _SETTINGS.format(
        **dev["contracts"],
        database_url=dev["databaseUrl"],
        redis_url=dev["redisUrl"],
        data_dir=ltzd.data_dir,
        rpc_url=dev["rpcUrl"],
        first_block=first_block,
        port=port,
        admin_port=admin_port,
    )
    write_private(config, text)
    async with running(["-m", "ltzd", "run", "--config", str(config)], log) as process:
        await until_it_listens(process, port, log)
        yield HttpProcess(process.pid, port)
