"""Two http processes compared with one: signed reads and durable events.

Every http process has the same fixed share of a core (`harness/cpu_quota`). The generators,
PostgreSQL and Redis run outside of these shares, so that a second process takes nothing from the
first. Each process has a generator of its own with as many clients as the other one's: twice the
processes serve twice the callers, each of whom waits no longer.
"""

import asyncio
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import instance, load, resources, results
from benchmarks.harness.cpu_quota import core_share
from benchmarks.harness.http_processes import HttpProcess, an_http_process
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Load, Plan
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.sides import USERS, WARM_UP_SECONDS, check, first_events
from benchmarks.reads.perk_tokens import FEW, Tables
from benchmarks.reads.perks import statuses
from ltzd.rules.request_signatures import signature
from ltzd.store.database import Connection, connect
from ltzd.values import address_of

SHARE = 0.2
"""Of a core for each http process: two of them leave most of two cores to the rest."""
CLIENTS = 64
"""Of each process."""
MUST = 1.7
_MOST_READS_A_SECOND = 3_000
"""The number of reads signed for each second and process, above what a share answers."""

Requests = Callable[[int, int], list[str]]
"""Prepares the requests of a generator: its number, 0 or 1, and the port that it loads."""


@dataclass(frozen=True, slots=True)
class Side:
    """`cpu` is in microseconds of each program for a request, `wal_bytes` PostgreSQL's log for it;
    `busy` are the http processes' shares of a core.
    """

    per_second: float
    p50_ms: float
    p99_ms: float
    errors: int
    generator_share: float
    busy: list[float]
    cpu: dict[str, float]
    wal_bytes: float


@dataclass(frozen=True, slots=True)
class Round:
    reads: tuple[Side, Side]
    events: tuple[Side, Side]

    def as_json(self) -> dict[str, Any]:
        return {
            name: {"one": _json(sides[0]), "two": _json(sides[1])}
            for name, sides in (("reads", self.reads), ("events", self.events))
        }


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with AsyncExitStack() as stack:
            folder = Path(name)
            ltzd = await stack.enter_async_context(instance.started(folder))
            await first_events(ltzd, USERS)
            database = await connect(ltzd.dev_json["databaseUrl"], "benchmark")
            stack.push_async_callback(database.close)
            await Tables(database, address_of(ltzd.dev_json["brand"]["brandId"])).fill_few()
            processes = [
                await stack.enter_async_context(an_http_process(ltzd, folder)) for _ in range(2)
            ]
            limited = [stack.enter_context(core_share(process.pid, SHARE)) for process in processes]
            sides = _Sides(ltzd, database, processes, seconds)
            await sides.warm_up()
            measured = [await sides.round() for _ in range(rounds)]
    details = {
        "share_of_a_core": SHARE if all(limited) else None,
        "rounds": [round_.as_json() for round_ in measured],
    }
    lines = _measurements(measured, has_shares=all(limited))
    results.record("http-scale", lines, details, in_document=in_document)


class _Sides:
    def __init__(
        self,
        ltzd: Instance,
        database: Connection,
        processes: Sequence[HttpProcess],
        seconds: float,
    ) -> None:
        self._ltzd = ltzd
        self._database = database
        self._processes = processes
        self._seconds = seconds
        self._programs = resources.programs(ltzd.pid, ltzd.data_dir, ltzd.anvil_pid)

    async def warm_up(self) -> None:
        """Sends an event of each user to each process, which then knows all users."""
        users = self._ltzd.event_bodies(range(USERS), instance.UNREWARDED)
        for process in self._processes:
            requests = [load.post(process.port, instance.EVENT_PATH, body) for body in users]
            plan = Plan(port=process.port, requests=requests, must_hold=instance.RECORDED)
            check(await load.measure(plan))

    async def round(self) -> Round:
        """One process is measured before two in the reads, and after two in the events."""
        first, both = self._processes[:1], self._processes
        reads = (await self._reads("reads, 1", first), await self._reads("reads, 2", both))
        events = await self._events("events, 2", both)
        return Round(reads, (await self._events("events, 1", first), events))

    async def _reads(self, name: str, processes: Sequence[HttpProcess]) -> Side:
        count = int(_MOST_READS_A_SECOND * (self._seconds + WARM_UP_SECONDS))
        brand = self._ltzd.dev_json["brand"]

        def prepare(_: int, port: int) -> list[str]:
            return list(islice(_signed_reads(brand, port), count))

        return await self._measure(name, processes, prepare)

    async def _events(self, name: str, processes: Sequence[HttpProcess]) -> Side:
        users = self._ltzd.event_bodies(range(USERS), instance.UNREWARDED)

        def prepare(number: int, port: int) -> list[str]:
            start = number * USERS // 2
            bodies = users[start:] + users[:start]
            return [load.post(port, instance.EVENT_PATH, body) for body in bodies]

        return await self._measure(name, processes, prepare)

    async def _measure(
        self, name: str, processes: Sequence[HttpProcess], prepare: Requests
    ) -> Side:
        plans = [
            Plan(
                port=process.port,
                requests=prepare(number, process.port),
                clients=CLIENTS,
                warm_up_seconds=WARM_UP_SECONDS,
                seconds=self._seconds,
                must_hold=instance.RECORDED,
            )
            for number, process in enumerate(processes)
        ]
        log_before = await self._log_position()
        before, begun = self._cpu(processes), time.monotonic()
        loads = await asyncio.gather(*map(load.measure, plans))
        seconds = time.monotonic() - begun
        log_bytes = await self._log_position() - log_before
        after = self._cpu(processes)
        used = {name: after[name] - before[name] for name in after}
        side = _side([check(each) for each in loads], used, log_bytes, len(processes), seconds)
        shares = ", ".join(f"{share:.2f}" for share in side.busy)
        print(
            f"  {name:10} {side.per_second:8,.0f}/s  p50 {side.p50_ms:6.2f} ms  "
            f"p99 {side.p99_ms:6.2f} ms  errors {side.errors}  cores {shares}  CPU µs a request: "
            + ", ".join(f"{each} {micros:.0f}" for each, micros in side.cpu.items())
            + f"; WAL bytes {side.wal_bytes:.0f}",
            flush=True,
        )
        return side

    async def _log_position(self) -> int:
        position: int = await self._database.fetchval(
            "SELECT (pg_current_wal_lsn() - '0/0')::bigint"
        )
        return position

    def _cpu(self, processes: Sequence[HttpProcess]) -> dict[str, float]:
        names = {
            f"http {number}": psutil.Process(process.pid)
            for number, process in enumerate(processes, start=1)
        }
        return resources.cpu_seconds({**self._programs, **names})


def _signed_reads(brand: dict[str, Any], port: int) -> Iterator[str]:
    """Reads of a token's status, each with a nonce of its own."""
    for target in statuses(FEW):
        timestamp, nonce = str(int(time.time())), secrets.token_urlsafe(12)
        made = signature(brand["securityKey"], timestamp, nonce, "GET", target.encode(), b"")
        yield load.get(
            port,
            target,
            f"X-LTZ-Brand-Id: {brand['brandId']}",
            f"X-LTZ-Timestamp: {timestamp}",
            f"X-LTZ-Nonce: {nonce}",
            f"X-LTZ-Signature: {made}",
        )


def _side(
    loads: Sequence[Load], used: dict[str, float], log_bytes: int, count: int, seconds: float
) -> Side:
    answered = sum(each.recorded for each in loads)
    https = [used[f"http {number}"] for number in range(1, count + 1)]
    services = {name: used[name] for name in ("postgres", "redis")}
    per_request = {"http": sum(https), **services, "dev": used[resources.LTZD]}
    return Side(
        per_second=sum(each.per_second for each in loads),
        p50_ms=max(each.p50_ms for each in loads),
        p99_ms=max(each.p99_ms for each in loads),
        errors=sum(each.errors for each in loads),
        generator_share=sum(each.generator_share for each in loads),
        busy=[each / seconds for each in https],
        cpu={name: 1e6 * spent / answered for name, spent in per_request.items()},
        wal_bytes=log_bytes / answered,
    )


def _measurements(measured: Sequence[Round], *, has_shares: bool) -> list[Measurement]:
    reads = [round_.reads for round_ in measured]
    events = [round_.events for round_ in measured]
    lines: list[Measurement] = []
    for name, sides in (("signed perk reads", reads), ("durable events", events)):
        if has_shares:
            lines.append(_throughput(name, sides))
        lines.append(_work(name, sides))
    return lines


def _throughput(name: str, sides: Sequence[tuple[Side, Side]]) -> Ratio:
    single, double = sorted(sides, key=lambda pair: pair[1].per_second / pair[0].per_second)[
        len(sides) // 2
    ]
    return Ratio(
        name=f"{name} a second: two http processes ÷ one, {SHARE:.0%} of a core each",
        rounds=tuple(pair[1].per_second / pair[0].per_second for pair in sides),
        must=MUST,
        figures=(
            f"{double.per_second:,.0f} ÷ {single.per_second:,.0f} a second "
            f"(p50 {double.p50_ms:.0f} and {single.p50_ms:.0f} ms)"
        ),
    )


def _work(name: str, sides: Sequence[tuple[Side, Side]]) -> Figure:
    single, double = sides[len(sides) // 2]
    parts = (
        f"{each} {double.cpu[each]:.0f} and {single.cpu[each]:.0f}"
        for each in ("http", "postgres", "redis")
    )
    return Figure(
        name=f"CPU time for each of the {name} with two http processes and with one",
        figures=", ".join(parts) + " µs",
    )


def _json(side: Side) -> dict[str, Any]:
    return {name: getattr(side, name) for name in Side.__slots__}
