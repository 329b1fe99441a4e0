"""Events in requests of 50, compared with single events, hello, and PostgreSQL's own inserts.

Both kinds of requests are measured durable (events that earn nothing) and with their mints' hashes.
"""

import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import instance, load, processes, resources, results
from benchmarks.harness.instance import BULK_EVENTS, Instance
from benchmarks.harness.load import Load
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.sides import CLIENTS, USERS, WARM_UP_SECONDS, first_events, timed
from benchmarks.limits import inserts
from benchmarks.limits.inserts import Inserted, InsertLoad

BULK_CLIENTS = 8
"""The best of 2, 4, 8 and 16; 8 and 16 differ less than rounds do."""
CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Side:
    """`cpu` is in microseconds per event, by program."""

    load: Load
    cpu: dict[str, float]

    @property
    def per_second(self) -> float:
        return self.load.per_second

    def as_json(self) -> dict[str, Any]:
        return {"load": self.load.as_json(), "cpu_microseconds_per_event": self.cpu}


@dataclass(frozen=True, slots=True)
class Round:
    """`recorded` events earn nothing; `minted` events are answered with their mint's hash."""

    hello: Load
    recorded: Side
    bulk_recorded: Side
    minted: Side
    bulk_minted: Side
    row_inserts: Inserted
    bulk_inserts: Inserted

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name).as_json() for name in self.__slots__}


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        folder = Path(name)
        async with instance.started(folder) as ltzd, processes.hello(folder) as hello_port:
            await first_events(ltzd, USERS)
            measured = [await _round(ltzd, hello_port, seconds) for _ in range(rounds)]
    details = {"bulk_clients": BULK_CLIENTS, "rounds": [round_.as_json() for round_ in measured]}
    results.record("bulk", _measurements(measured), details, in_document=in_document)


async def _round(ltzd: Instance, hello_port: int, seconds: float) -> Round:
    """Measures all sides in turn; ltzd is idle before each."""
    sides = _Sides(ltzd, seconds)
    hello = await timed("hello", hello_port, [load.get(hello_port, "/")], seconds, "hello")
    return Round(
        hello=hello,
        recorded=await sides.single("recorded", instance.UNREWARDED, instance.RECORDED),
        bulk_recorded=await sides.bulk(
            "bulk recorded", instance.UNREWARDED, instance.FINAL_IN_BULK
        ),
        row_inserts=await sides.inserts(1),
        bulk_inserts=await sides.inserts(BULK_EVENTS),
        minted=await sides.single("minted", instance.MINTED, instance.HASH_IN_ANSWER),
        bulk_minted=await sides.bulk("bulk minted", instance.MINTED, instance.PUBLISHED_IN_BULK),
    )


class _Sides:
    def __init__(self, ltzd: Instance, seconds: float) -> None:
        self._ltzd = ltzd
        self._seconds = seconds
        self._programs = resources.programs(ltzd.pid, ltzd.data_dir, ltzd.anvil_pid)

    async def single(self, side: str, kind: str, must_hold: str) -> Side:
        requests = self._ltzd.events(range(USERS), kind)
        return await self._costed(timed(side, self._ltzd.port, requests, self._seconds, must_hold))

    async def bulk(self, side: str, kind: str, must_hold: str) -> Side:
        loading = timed(
            side,
            self._ltzd.port,
            self._ltzd.bulks(range(USERS), kind),
            self._seconds,
            must_hold,
            queued_if=instance.BULK_PROCESSED,
            clients=BULK_CLIENTS,
            events=BULK_EVENTS,
        )
        return await self._costed(loading)

    async def _costed(self, loading: Awaitable[Load]) -> Side:
        before = resources.cpu_seconds(self._programs)
        measured = await loading
        await self._ltzd.settle()
        after = resources.cpu_seconds(self._programs)
        cpu = {name: 1e6 * (after[name] - before[name]) / measured.recorded for name in after}
        used = ", ".join(f"{name} {microseconds:.0f}" for name, microseconds in cpu.items())
        print(f"                 CPU µs an event: {used}", flush=True)
        return Side(measured, cpu)

    async def inserts(self, rows: int) -> Inserted:
        url = self._ltzd.dev_json["databaseUrl"]
        work = InsertLoad(url, CONNECTIONS, rows, WARM_UP_SECONDS, self._seconds)
        inserted = await inserts.measure(work)
        print(
            f"  {f'inserts of {rows}':14} {inserted.per_second:8,.0f}/s  "
            f"p50 {inserted.p50_ms:6.2f} ms  p99 {inserted.p99_ms:6.2f} ms  "
            f"client {inserted.client_share:.0%}",
            flush=True,
        )
        return inserted


Measured = Load | Side | Inserted


def _measurements(measured: list[Round]) -> list[Measurement]:
    hello = f"bare Sanic hello, {CLIENTS} clients"
    rows = f"PostgreSQL inserts of {{}}, {CONNECTIONS} connections"
    return [
        _ratio(
            "durable bulk events ÷ durable single events",
            measured,
            lambda round_: (round_.bulk_recorded, round_.recorded),
        ),
        _ratio(
            "bulk events with their mints' hashes ÷ single ones with theirs",
            measured,
            lambda round_: (round_.bulk_minted, round_.minted),
        ),
        _ratio(
            f"durable bulk events ÷ {hello}",
            measured,
            lambda round_: (round_.bulk_recorded, round_.hello),
        ),
        _ratio(
            f"bulk events with their mints' hashes ÷ {hello}",
            measured,
            lambda round_: (round_.bulk_minted, round_.hello),
        ),
        _ratio(
            f"durable single events ÷ {rows.format('one row')}",
            measured,
            lambda round_: (round_.recorded, round_.row_inserts),
        ),
        _ratio(
            f"durable bulk events ÷ {rows.format(f'{BULK_EVENTS} rows')}",
            measured,
            lambda round_: (round_.bulk_recorded, round_.bulk_inserts),
        ),
        Figure(
            name="ltzd's CPU time for a single event and for one in bulk", figures=_cpu(measured)
        ),
    ]


def _cpu(measured: list[Round]) -> str:
    def of(side: Callable[[Round], Side]) -> str:
        return f"{median(side(round_).cpu[resources.LTZD] for round_ in measured):.0f}"

    return (
        f"{of(lambda each: each.recorded)} and {of(lambda each: each.bulk_recorded)} µs durable, "
        f"{of(lambda each: each.minted)} and {of(lambda each: each.bulk_minted)} µs with its mint"
    )


def _ratio(
    name: str, measured: list[Round], sides: Callable[[Round], tuple[Side, Measured]]
) -> Ratio:
    pairs = sorted(map(sides, measured), key=_quotient)
    ours, theirs = pairs[len(pairs) // 2]
    return Ratio(
        name=name,
        rounds=tuple(_quotient(sides(round_)) for round_ in measured),
        figures=f"{ours.per_second:,.0f} ÷ {theirs.per_second:,.0f} a second{_latency(ours)}",
    )


def _quotient(pair: tuple[Side, Measured]) -> float:
    ours, theirs = pair
    return ours.per_second / theirs.per_second


def _latency(side: Side) -> str:
    return f"; a request p50 {side.load.p50_ms:.0f}, p99 {side.load.p99_ms:.0f} ms"
