"""The backfill: ltzd, Ponder, bare fetch-and-decode and PostgreSQL's own limit, on one chain.

Each side begins with an empty database and ends when every transfer is in it. Seconds count from
the start of the process, its own migrations included; the rates of ltzd count from its first
commit too, since the limits have no start.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import asyncpg
import msgspec
import psutil

from benchmarks.harness import ponder, processes, results
from benchmarks.harness.ponder import Backfilled
from benchmarks.harness.resources import MIB
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.transfers import TransferChain, transfer_chain
from benchmarks.limits import transfers as limits
from benchmarks.limits.transfers import Handled, TransferWork
from ltzd.dev.services import postgres
from ltzd.dev.services.ports import free_port
from ltzd.secret_files import write_private
from ltzd.values import checksummed, hex_of

TRANSFERS, BLOCKS, HOLDERS = 200_000, 2_000, 20_000
_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.02
_SETTINGS = """
database_url = "{database_url}"
master_key_file = "{folder}/master.key"
roles = ["indexer"]
[node]
rpc_url = "{chain.rpc_url}"
[contracts]
ltz = "{LTZ}"
perk_nft = "{PerkNFT}"
points_sale = "{PointsSale}"
business_escrow = "{BusinessEscrow}"
first_block = {chain.deployment.first_block}
[identity]
kind = "oidc"
issuer = "https://login.invalid/"
audience = "ltzd"
[admin]
port = {port}
"""


@dataclass(frozen=True, slots=True)
class Ours:
    """`start_seconds` pass until the first commit of blocks; `memory_mib` is the peak."""

    seconds: float
    start_seconds: float
    cpu_seconds: float
    memory_mib: float

    def per_second(self, events: int) -> float:
        return events / (self.seconds - self.start_seconds)


@dataclass(frozen=True, slots=True)
class Round:
    ours: Ours
    fetching: Handled
    writing: Handled
    ponder: Backfilled | None


async def run(*, rounds: int, in_document: bool) -> None:
    has_ponder = await ponder.install()
    if not has_ponder:
        print("Ponder is left out: there is no Node, or its packages cannot be had", flush=True)
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        folder = Path(name)
        server = await postgres.start(folder)
        try:
            print("making the chain takes some minutes …", flush=True)
            async with transfer_chain(folder, TRANSFERS, BLOCKS, HOLDERS) as chain:
                measured = [
                    await _round(chain, server.url, has_ponder=has_ponder) for _ in range(rounds)
                ]
        finally:
            await postgres.stop(folder)
    details = {
        "transfers": TRANSFERS,
        "blocks": BLOCKS,
        "holders": HOLDERS,
        "rounds": [msgspec.to_builtins(round_) for round_ in measured],
    }
    results.record("backfill", _measurements(measured), details, in_document=in_document)


async def _round(chain: TransferChain, server: str, *, has_ponder: bool) -> Round:
    """Measures all sides in turn."""
    work = TransferWork(chain.rpc_url, hex_of(chain.ltz), chain.head)
    async with _database(server) as url:
        ours = await _backfill(chain, url)
    print(
        f"  ltzd     {ours.seconds:6.1f} s, {ours.start_seconds:.1f} s of it its start, "
        f"{ours.cpu_seconds:.1f} s of CPU, {ours.memory_mib:.0f} MiB",
        flush=True,
    )
    fetching = await limits.measure(work)
    print(f"  fetching {fetching.per_second:9,.0f} events/s", flush=True)
    async with _database(server) as url:
        writing = await limits.measure(TransferWork(work.rpc_url, work.contract, work.last, url))
    print(f"  writing  {writing.per_second:9,.0f} events/s", flush=True)
    theirs = None
    if has_ponder:
        async with _database(server) as url:
            theirs = await ponder.backfill(chain, url)
        print(
            f"  Ponder   {theirs.seconds:6.1f} s, {theirs.cpu_seconds:.1f} s of CPU, "
            f"{theirs.memory_mib:.0f} MiB",
            flush=True,
        )
    return Round(ours, fetching, writing, theirs)


@asynccontextmanager
async def _database(server: str) -> AsyncIterator[str]:
    """An empty database."""
    connection = await asyncpg.connect(server)
    try:
        await connection.execute("DROP DATABASE IF EXISTS backfill WITH (FORCE)")
        await connection.execute("CREATE DATABASE backfill")
        yield f"{server.rpartition('/')[0]}/backfill"
        await connection.execute("DROP DATABASE backfill WITH (FORCE)")
    finally:
        await connection.close()


async def _backfill(chain: TransferChain, url: str) -> Ours:
    """Runs `ltzd run` with the role indexer until the cursor is at the head."""
    folder = chain.folder
    addresses = {
        name: checksummed(placed.address) for name, placed in chain.deployment.contracts.items()
    }
    key, file = folder / "master.key", folder / "ltzd.toml"
    if not key.exists():
        write_private(key, "ab" * 32 + "\n")
    text = _SETTINGS.format(
        database_url=url, folder=folder, chain=chain, port=free_port(), **addresses
    )
    file.unlink(missing_ok=True)
    write_private(file, text)
    log = folder / "ltzd.log"
    begun = perf_counter()
    async with processes.running(["-m", "ltzd", "run", "--config", str(file)], log) as process:
        program = psutil.Process(process.pid)
        started = peak = 0.0
        connection = await asyncpg.connect(url)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while (number := await _cursor(connection)) < chain.head:
                    processes.check_alive(process, log)
                    if not started and number >= chain.deployment.first_block:
                        started = perf_counter() - begun
                    peak = max(peak, program.memory_info().rss / MIB)
                    await asyncio.sleep(_POLL_SECONDS)
            seconds, times = perf_counter() - begun, program.cpu_times()
            events = await connection.fetchval("SELECT count(*) FROM transfers")
        finally:
            await connection.close()
    if events != chain.transfers:
        raise SystemExit(f"ltzd indexed {events} of {chain.transfers} transfers")
    return Ours(seconds, started, times.user + times.system, peak)


async def _cursor(connection: asyncpg.Connection) -> int:
    """The last indexed block; -1 before the database has a schema and the chain is followed."""
    try:
        number: int | None = await connection.fetchval("SELECT cursor_number FROM chains")
    except asyncpg.PostgresError:
        return -1
    return -1 if number is None else number


def _measurements(measured: list[Round]) -> list[Measurement]:
    rates = [round_.ours.per_second(TRANSFERS) for round_ in measured]
    measurements: list[Measurement] = [
        Ratio(
            "backfill ÷ bare fetch-and-decode (msgspec, hand rows, 100 blocks, one in flight)",
            tuple(
                rate / round_.fetching.per_second
                for rate, round_ in zip(rates, measured, strict=True)
            ),
            _figures(measured, rates, lambda round_: round_.fetching.per_second),
            0.30,
            0.45,
        ),
        Ratio(
            "backfill ÷ PostgreSQL's transactions of 10,000 events",
            tuple(
                rate / round_.writing.per_second
                for rate, round_ in zip(rates, measured, strict=True)
            ),
            _figures(measured, rates, lambda round_: round_.writing.per_second),
            0.40,
            0.60,
        ),
    ]
    pairs = [(round_.ours, round_.ponder) for round_ in measured if round_.ponder is not None]
    if pairs:
        measurements += [
            Ratio(
                "Ponder 0.16.10, tuned ÷ ltzd: seconds from start to done",
                tuple(theirs.seconds / ours.seconds for ours, theirs in pairs),
                f"{median(theirs.seconds for _, theirs in pairs):.1f} and "
                f"{median(ours.seconds for ours, _ in pairs):.1f} s",
                4,
                8,
            ),
            Ratio(
                "the backfill's peak memory ÷ Ponder's",
                tuple(ours.memory_mib / theirs.memory_mib for ours, theirs in pairs),
                f"{median(ours.memory_mib for ours, _ in pairs):.0f} and "
                f"{median(theirs.memory_mib for _, theirs in pairs):.0f} MiB",
                0.3,
                0.2,
                is_lower_better=True,
            ),
            Figure(
                "CPU time of the backfill and of Ponder, without node and database",
                f"{median(ours.cpu_seconds for ours, _ in pairs):.1f} and "
                f"{median(theirs.cpu_seconds for _, theirs in pairs):.1f} s",
            ),
        ]
    return measurements


def _figures(measured: list[Round], rates: list[float], limit: Callable[[Round], float]) -> str:
    return f"{median(rates):,.0f} and {median(map(limit, measured)):,.0f} events/s"
