"""Hot queries of 10,000,000 blocks and as many events compared with 100,000 of each.

Each size has a database of its own, with partitions as the indexer makes them. Each query runs on a
connection of the daemon's pool, so that its plan is the one that the daemon uses; what a query
writes is undone. A query that touches more pages than `harness/hot_queries.py` allows fails the
benchmark.
"""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.harness import event_rows, results
from benchmarks.harness.event_queries import EVENT_QUERIES
from benchmarks.harness.hot_queries import HOT_QUERIES, HotQuery, Sample, touched
from benchmarks.harness.index_rows import fill
from benchmarks.harness.results import Measurement, Ratio
from ltzd.dev.services import postgres
from ltzd.store.database import Connection, connect, open_pool, session
from ltzd.store.schema_revisions import migrate

FEW = 100_000
_REPEATS = 60
_QUERIES = (*HOT_QUERIES, *EVENT_QUERIES)
_PREPARE_SECONDS = 3_600.0

Times = dict[str, float]
"""Milliseconds by the query's name."""


async def run(*, rows: int, rounds: int, in_document: bool) -> None:
    measured: list[tuple[Times, Times]] = []
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        server = await postgres.start(Path(name))
        try:
            async with _index(server.url, FEW) as few, _index(server.url, rows) as many:
                pages = await _pages(many, Sample(rows))
                for _ in range(rounds):
                    times: dict[int, Times] = {FEW: {}, rows: {}}
                    for query in _QUERIES:
                        times[FEW][query.name] = await _time(few, query, Sample(FEW))
                        times[rows][query.name] = await _time(many, query, Sample(rows))
                    measured.append((times[FEW], times[rows]))
        finally:
            await postgres.stop(Path(name))
    for query in _QUERIES:
        few_ms, many_ms = (median(each[side][query.name] for each in measured) for side in (0, 1))
        print(
            f"  {query.name:40} {pages[query.name]:6} pages  {few_ms:8.3f} → {many_ms:8.3f} ms",
            flush=True,
        )
    details = {"rows": rows, "pages": pages, "rounds": [list(each) for each in measured]}
    results.record("store", _measurements(rows, measured), details, in_document=in_document)


@asynccontextmanager
async def _index(server_url: str, rows: int) -> AsyncIterator[Connection]:
    """A connection of a pool to a database with an index of this size."""
    connection = await connect(server_url, "benchmark")
    await connection.execute(f"CREATE DATABASE index_{rows}")
    await connection.close()
    url = f"{server_url.rpartition('/')[0]}/index_{rows}"
    await migrate(url)
    started = perf_counter()
    pool = await open_pool(url)
    try:
        async with session(pool) as connection:
            await fill(connection, rows)
            await event_rows.fill(connection, rows)
            for statement in ("VACUUM ANALYZE", "CHECKPOINT"):
                await connection.execute(statement, timeout=_PREPARE_SECONDS)
            size, partitions = await connection.fetchrow(
                "SELECT pg_database_size(current_database()), (SELECT count(*) FROM pg_inherits)"
            )
        print(
            f"  {rows:,} blocks and events in {perf_counter() - started:.0f} s:",
            f"{size / 2**30:.1f} GiB",
            f"in {partitions} tables and indexes of partitions",
            flush=True,
        )
        async with session(pool) as connection:
            yield connection
    finally:
        await pool.close()


async def _pages(connection: Connection, sample: Sample) -> dict[str, int]:
    """By the query's name. Raises SystemExit if a query touches too many."""
    pages = {}
    for query in _QUERIES:
        pages[query.name], scanned = await touched(connection, query, sample)
        if pages[query.name] > query.pages or _large(scanned):
            raise SystemExit(f"{query.name} touches {pages[query.name]} pages, scans {scanned}")
    return pages


def _large(tables: set[str]) -> bool:
    names = {table.partition("_from_")[0] for table in tables}
    return bool(names & {"tokens", "balances", "rewards", "events", "users"})


async def _time(connection: Connection, query: HotQuery, sample: Sample) -> float:
    """The median milliseconds of a query, without the beginning and the end of its transaction."""
    taken = []
    for _ in range(_REPEATS):
        block = connection.transaction()
        await block.start()
        before = perf_counter()
        await query.ask(connection, sample)
        taken.append((perf_counter() - before) * 1000)
        await block.rollback()
    return median(taken)


def _measurements(rows: int, measured: list[tuple[Times, Times]]) -> list[Measurement]:
    return [
        _ratio(rows, measured, HOT_QUERIES[0].name, must=2),
        _ratio(rows, measured, HOT_QUERIES[1].name, must=2),
        _ratio(rows, measured, EVENT_QUERIES[0].name, must=2),
        _worst(rows, measured),
    ]


def _ratio(
    rows: int, measured: list[tuple[Times, Times]], name: str, must: float | None
) -> Measurement:
    few_ms, many_ms = (median(each[side][name] for each in measured) for side in (0, 1))
    return Ratio(
        name=f"index of {rows:,} blocks ÷ of {FEW:,}: {name}, p50",
        rounds=tuple(many[name] / few[name] for few, many in measured),
        must=must,
        is_lower_better=True,
        figures=f"{many_ms:.2f} ÷ {few_ms:.2f} ms",
    )


def _worst(rows: int, measured: list[tuple[Times, Times]]) -> Measurement:
    """The read whose time grows most, but for `ltzd status`, which counts mints up to a bound."""
    reads = [query.name for query in (*HOT_QUERIES[2:-1], *EVENT_QUERIES[2:-1])]
    name = max(reads, key=lambda each: median(many[each] / few[each] for few, many in measured))
    return _ratio(rows, measured, name, must=4)
