"""What `ltzd run` with all roles needs while it has nothing to do but to follow a block a second.

Memory is the resident set after a minute of idling. CPU time is that of the seconds after it, of
ltzd and of its services; the services' own is measured before ltzd starts, and told beside it.
"""

import asyncio
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.harness import resources, results
from benchmarks.harness.resources import LTZD, MIB
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.whole_process import Surroundings, surroundings, whole_process
from ltzd.store.database import Connection, connect

MUST_MIB = 90e6 / MIB
"""90 MB."""
MUST_SHARE = 0.005
"""Of a core."""
SETTLING_SECONDS = 60.0
_SERVICES = ("postgres", "redis", "anvil")


@dataclass(frozen=True, slots=True)
class Round:
    """CPU times are shares of a core; memory is in MiB."""

    memory: float
    private_memory: float
    cpu: dict[str, float]
    cpu_without_ltzd: dict[str, float]
    transactions_per_second: float


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with surroundings(Path(name)) as around:
            database = await connect(around.database_url, "benchmark")
            try:
                measured = [await _round(around, database, seconds) for _ in range(rounds)]
            finally:
                await database.close()
    details = {"rounds": [asdict(each) for each in measured]}
    results.record("idle", _measurements(measured), details, in_document=in_document)


async def _round(around: Surroundings, database: Connection, seconds: float) -> Round:
    services = resources.programs(psutil.Process().pid, around.data_dir, around.anvil_pid)
    alone, _ = await _shares({name: services[name] for name in _SERVICES}, database, seconds)
    async with whole_process(around, around.config.with_suffix(".log")) as process:
        await asyncio.sleep(SETTLING_SECONDS)
        ltzd = psutil.Process(process.pid)
        memory, private = ltzd.memory_info().rss, ltzd.memory_full_info().uss
        cpu, transactions = await _shares({**services, LTZD: ltzd}, database, seconds)
    round_ = Round(memory / MIB, private / MIB, cpu, alone, transactions)
    print(f"  {round_.memory:.1f} MiB, {_percent(cpu[LTZD])} of a core", flush=True)
    return round_


async def _shares(
    programs: resources.Programs, database: Connection, seconds: float
) -> tuple[dict[str, float], float]:
    """Each program's share of a core, and the transactions of PostgreSQL a second."""
    transactions, cpu, begun = await _count(database), _cpu(programs), time.monotonic()
    await asyncio.sleep(seconds)
    took, used = time.monotonic() - begun, _cpu(programs)
    per_second = (await _count(database) - transactions) / took
    return {name: (used[name] - cpu[name]) / took for name in used}, per_second


def _cpu(programs: resources.Programs) -> dict[str, float]:
    return resources.cpu_seconds(programs)


async def _count(database: Connection) -> int:
    """Sessions report their transactions with a delay of up to a second."""
    count: int = await database.fetchval(
        """
        SELECT xact_commit + xact_rollback
          FROM pg_stat_database
         WHERE datname = current_database()
        """
    )
    return count


def _measurements(measured: list[Round]) -> list[Measurement]:
    typical = sorted(measured, key=lambda each: each.cpu[LTZD])[len(measured) // 2]
    services = ", ".join(
        f"{name} {_percent(typical.cpu[name])} beside {_percent(typical.cpu_without_ltzd[name])}"
        for name in _SERVICES
    )
    return [
        Ratio(
            name="idle: memory of `ltzd run` with all roles ÷ 90 MB",
            rounds=tuple(each.memory / MUST_MIB for each in measured),
            must=1.0,
            is_lower_better=True,
            figures=f"{typical.memory:.0f} MiB, of them {typical.private_memory:.0f} its own",
        ),
        Ratio(
            name=f"idle: CPU time of `ltzd run` with a block a second ÷ {_percent(MUST_SHARE)}",
            rounds=tuple(each.cpu[LTZD] / MUST_SHARE for each in measured),
            must=1.0,
            is_lower_better=True,
            figures=f"{_percent(typical.cpu[LTZD])} of a core",
        ),
        Figure(
            name="idle: CPU time of the services, beside that without ltzd",
            figures=(
                f"{services} of a core; {typical.transactions_per_second:.1f} transactions "
                "of PostgreSQL a second"
            ),
        ),
    ]


def _percent(share: float) -> str:
    return f"{share:.2%}"
