"""Whether PostgreSQL's tables and indexes grow with their rows alone, under events and relays.

Events with their mints and relays are sent at a steady rate, far below what ltzd can do. Each
minute the sizes of all tables are read, with PostgreSQL's own counts of live and dead rows and of
autovacuum's runs. The first half of the run is the warm-up.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import relay_calls
from benchmarks.harness import instance, load, results
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Plan
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.sides import check, first_events
from benchmarks.relay_calls import Calls
from ltzd.store.database import Connection, connect

EVENTS_A_SECOND = 100
USERS = 20_000
"""Each has a new event every 200 seconds."""
CLIENTS = 32
LARGE_BYTES = 2**20
"""Smaller tables grow by whole pages, so their bytes a row say little."""
MOST_GROWTH = 1.1
MOST_DEAD = 0.3
"""Autovacuum begins at a fifth."""
_MINUTE = 60.0
_RELAYING_USERS = 300
_RELAYS_A_SECOND = 2.0


@dataclass(frozen=True, slots=True)
class Table:
    """A table with all of its partitions; `vacuums` counts autovacuum's runs."""

    heap_bytes: int
    index_bytes: int
    live: int
    dead: int
    vacuums: int

    @property
    def size(self) -> int:
        return self.heap_bytes + self.index_bytes

    @property
    def row_bytes(self) -> float:
        return self.size / max(self.live, 1)

    @property
    def dead_share(self) -> float:
        return self.dead / max(self.live + self.dead, 1)


Tables = Mapping[str, Table]


async def run(*, seconds: float, in_document: bool) -> None:
    minutes = max(round(seconds / _MINUTE), 2)
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with instance.started(Path(name)) as ltzd:
            await first_events(ltzd, _RELAYING_USERS)
            calls = Calls(ltzd, await relay_calls.logged_in(ltzd, _RELAYING_USERS))
            database = await connect(ltzd.dev_json["databaseUrl"], "benchmark")
            try:
                samples = []
                for minute in range(minutes):
                    await _load(ltzd, calls, minute)
                    samples.append(await _tables(database))
                    _print(minute + 1, samples[-1])
            finally:
                await database.close()
    _record(minutes, samples, in_document=in_document)


async def _load(ltzd: Instance, calls: Calls, minute: int) -> None:
    count = int(EVENTS_A_SECOND * _MINUTE)
    numbers = range(minute * count, (minute + 1) * count)
    events = [ltzd.events(range(at % USERS, at % USERS + 1))[0] for at in numbers]
    relays = calls.transfer_requests(int(_RELAYS_A_SECOND * _MINUTE))
    every = len(events) // len(relays)
    requests = [
        request
        for at, event in enumerate(events)
        for request in ((event, relays[at // every]) if at % every == 0 else (event,))
    ]
    plan = Plan(
        port=ltzd.port,
        requests=requests,
        clients=CLIENTS,
        must_hold=instance.RECORDED,
        own_addresses=True,
        per_second=len(requests) / _MINUTE,
    )
    check(await load.measure(plan))


async def _tables(database: Connection) -> dict[str, Table]:
    rows = await database.fetch(
        """
        SELECT coalesce(pg_partition_root(relid), relid)::regclass::text AS name,
               sum(pg_relation_size(relid)) AS heap_bytes,
               sum(pg_indexes_size(relid)) AS index_bytes,
               sum(n_live_tup) AS live, sum(n_dead_tup) AS dead, sum(autovacuum_count) AS vacuums
          FROM pg_stat_user_tables
         GROUP BY 1
         ORDER BY 1
        """
    )
    return {row["name"]: Table(*(int(value) for value in list(row.values())[1:])) for row in rows}


def _print(minute: int, tables: Tables) -> None:
    size = sum(table.size for table in tables.values())
    rows = sum(table.live for table in tables.values())
    vacuums = sum(table.vacuums for table in tables.values())
    print(
        f"  minute {minute:3}: {size / 2**20:8,.1f} MiB, {rows:10,} rows, {vacuums:4} vacuums",
        flush=True,
    )


def _record(minutes: int, samples: list[dict[str, Table]], *, in_document: bool) -> None:
    middle, end = samples[(minutes - 1) // 2], samples[-1]
    large = [name for name, table in middle.items() if table.size >= LARGE_BYTES]
    growth = {name: end[name].row_bytes / middle[name].row_bytes for name in large}
    dead = {
        name: max(sample[name].dead_share for sample in samples[(minutes - 1) // 2 :])
        for name in large
    }
    small = {
        name: (before.size, end[name].size)
        for name, before in middle.items()
        if before.size < LARGE_BYTES
    }
    for name in sorted(large, key=lambda each: -end[each].size):
        print(
            f"  {name:24} {end[name].live:10,} rows  {middle[name].row_bytes:7.0f} → "
            f"{end[name].row_bytes:7.0f} bytes a row ({growth[name]:.2f}), at most "
            f"{dead[name]:.0%} dead, {end[name].vacuums} vacuums",
            flush=True,
        )
    most_grown, most_dead = max(growth, key=growth.__getitem__), max(dead, key=dead.__getitem__)
    vacuums = sum(each.vacuums for each in end.values())
    lines: list[Measurement] = [
        Ratio(
            name="vacuum: bytes a row at the end ÷ in the middle, the worst large table",
            rounds=(growth[most_grown],),
            must=MOST_GROWTH,
            is_lower_better=True,
            figures=(
                f"`{most_grown}`: {end[most_grown].row_bytes:,.0f} ÷ "
                f"{middle[most_grown].row_bytes:,.0f} bytes, after {minutes} and "
                f"{(minutes - 1) // 2 + 1} minutes; {len(large)} tables above 1 MiB"
            ),
        ),
        Ratio(
            name="vacuum: dead rows ÷ all rows, the worst minute of any large table",
            rounds=(dead[most_dead],),
            must=MOST_DEAD,
            is_lower_better=True,
            figures=f"`{most_dead}`; {vacuums} runs of autovacuum",
        ),
        Figure(
            name="vacuum: all tables that were small in the middle",
            figures=(
                f"{sum(after for _, after in small.values()) / 2**20:.1f} ← "
                f"{sum(before for before, _ in small.values()) / 2**20:.1f} MiB"
            ),
        ),
    ]
    details = {
        "samples": [{name: asdict(table) for name, table in sample.items()} for sample in samples]
    }
    results.record("vacuum", lines, details, in_document=in_document)
