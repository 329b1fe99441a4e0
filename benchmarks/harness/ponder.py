"""Runs Ponder on a chain of transfers, tuned as its own documents advise: 16 URLs of the node."""

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import aiohttp
import psutil

from benchmarks.harness.processes import check_alive, running_program
from benchmarks.harness.resources import MIB
from benchmarks.harness.transfers import TransferChain
from ltzd.dev.services.ports import free_port
from ltzd.store.database import connect
from ltzd.values import hex_of

PROJECT = Path(__file__).parents[1] / "peers" / "ponder"
_SCRIPT = Path(__file__).parents[2] / "scripts" / "with-node"
_PROGRAM = "node_modules/ponder/dist/esm/bin/ponder.js"
_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Backfilled:
    """From the start of the process until all events are indexed. `memory_mib` is the peak."""

    seconds: float
    cpu_seconds: float
    memory_mib: float


async def install() -> bool:
    """Installs what the project's lock lists; returns whether Ponder can run."""
    process = await asyncio.create_subprocess_exec(
        str(_SCRIPT), "--in", "benchmarks/peers/ponder", "true"
    )
    return await process.wait() == 0 and (PROJECT / _PROGRAM).exists()


async def backfill(chain: TransferChain, database_url: str) -> Backfilled:
    """Indexes the chain into an empty database. Raises SystemExit if events are missing."""
    node = shutil.which("node") or str(_SCRIPT.parents[1] / ".tools" / "bin" / "node")
    port, log = free_port(), chain.folder / "ponder.log"
    settings = {
        "DATABASE_URL": database_url,
        "RPC_URL": chain.rpc_url,
        "LTZ": hex_of(chain.ltz),
        "FIRST_BLOCK": str(chain.deployment.first_block),
        "PONDER_TELEMETRY_DISABLED": "true",
    }
    command = ["env", "-C", str(PROJECT), *(f"{name}={text}" for name, text in settings.items())]
    command += [node, _PROGRAM, "start", "--schema", "ponder", "--port", str(port)]
    begun = perf_counter()
    async with running_program(command, log) as process, aiohttp.ClientSession() as session:
        program, peak = psutil.Process(process.pid), 0.0
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not await _is_ready(session, port):
                check_alive(process, log)
                peak = max(peak, program.memory_info().rss / MIB)
                await asyncio.sleep(_POLL_SECONDS)
        seconds, times = perf_counter() - begun, program.cpu_times()
    connection = await connect(database_url, "benchmark")
    try:
        events = await connection.fetchval("SELECT count(*) FROM ponder.transfer")
    finally:
        await connection.close()
    if events != chain.transfers:
        raise SystemExit(f"Ponder indexed {events} of {chain.transfers} events: {os.fspath(log)}")
    return Backfilled(seconds, times.user + times.system, peak)


async def _is_ready(session: aiohttp.ClientSession, port: int) -> bool:
    try:
        async with session.get(f"http://127.0.0.1:{port}/ready") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False
