"""`ltzd books` with 1,000,000 rewards beside one scan of each table that it compares.

The report finds no difference, as is usual; the chain is not asked.
"""

import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.harness import book_rows, results
from benchmarks.harness.results import Ratio
from ltzd.cli.books.report import read_report
from ltzd.cli.targets import Target
from ltzd.dev.services import postgres
from ltzd.store.database import Connection, connect
from ltzd.store.schema_revisions import migrate

REWARDS = 1_000_000
_TABLES = ("events", "rewards", "mints", "transfers", "balances", "earnings", "webhooks")


async def run(*, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        folder = Path(name)
        server = await postgres.start(folder)
        try:
            await migrate(server.url)
            connection = await connect(server.url, "benchmark")
            await book_rows.fill(connection, REWARDS)
            target = Target(server.url, folder / "no-key")
            measured = [
                (await _report(target, folder), await _scan(connection)) for _ in range(rounds)
            ]
            await connection.close()
        finally:
            await postgres.stop(folder)
    reports, scans = zip(*measured, strict=True)
    line = Ratio(
        name=f"`ltzd books`: seconds for {REWARDS:,} rewards",
        rounds=reports,
        figures=f"{REWARDS / median(reports):,.0f} rewards a second; one scan of each table takes "
        f"{median(scans):.1f} s",
        must=10.0,
        is_lower_better=True,
    )
    results.record("books", [line], {"reports": reports, "scans": scans}, in_document=in_document)


async def _report(target: Target, folder: Path) -> float:
    started = perf_counter()
    report = await read_report(target, folder, None)
    seconds = perf_counter() - started
    (row,) = {each.figures.minted for each in report.brands}
    if report.differences or row * len(report.brands) != REWARDS:
        raise RuntimeError(f"the books do not balance: {report}")
    return seconds


async def _scan(connection: Connection) -> float:
    started = perf_counter()
    for table in _TABLES:
        await connection.fetchval(f"SELECT count(t.*) FROM {table} AS t", timeout=600)
    return perf_counter() - started
