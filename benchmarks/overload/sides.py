"""The loads that are too much, each beside the sustainable rate alone.

All sides run one after the other on one instance: the sustainable rate alone, then the same beside
each kind of load that is too much. Events are recorded without a reward, so that the machine's two
cores are left to HTTP, PostgreSQL and the generator.
"""

import asyncio
import resource
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks.harness import instance, load, results
from benchmarks.harness.instance import Instance
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.sides import USERS, first_events, timed
from benchmarks.overload import flood
from benchmarks.overload.flood import Flood, Outcome, Stream

FACTOR = 5
SUSTAINABLE = 0.7
"""The part of the closed loop's rate that counts as sustainable."""
OTHERS = 4
OTHERS_PART = 0.5
"""The part of the sustainable rate that the other brands have together."""
CONNECTIONS = 4_096
"""Of the stream that is too much: enough for every request to leave when it is due."""
IDLE = 10_000
SLOW = 300
MIB = 1024 * 1024


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    _raise_file_limit()
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with instance.started(Path(name)) as ltzd:
            brands = [await ltzd.add_brand(number) for number in range(OTHERS)]
            await first_events(ltzd, USERS)
            measured = [await _round(ltzd, brands, seconds) for _ in range(rounds)]
            idle = await _idle_connections(ltzd, measured[-1]["rate"], seconds)
    results.record(
        "overload",
        _measurements(measured, idle),
        {"rounds": measured, "idle": idle},
        in_document=in_document,
    )


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _round(ltzd: Instance, brands: list[Instance], seconds: float) -> dict[str, Any]:
    requests = ltzd.events(range(USERS), instance.UNREWARDED)
    peak = await timed("closed loop", ltzd.port, requests, seconds, instance.RECORDED)
    rate = SUSTAINABLE * peak.per_second
    normal = _Shown("normal", await _send(ltzd, [_events(ltzd, rate)], seconds)).events
    over = _Shown(
        "overload",
        await _send(ltzd, [_events(ltzd, FACTOR * rate, connections=CONNECTIONS)], 2 * seconds),
    )
    recovery = await _recovery(ltzd, rate)
    each = OTHERS_PART * rate / OTHERS
    others = [_events(brand, each, f"other{number}") for number, brand in enumerate(brands)]
    alone = _Shown("others alone", await _send(ltzd, others, seconds))
    flooded = _Shown(
        "others flooded",
        await _send(ltzd, [*others, _events(ltzd, FACTOR * rate, "flood", CONNECTIONS)], seconds),
    )
    shares = [
        beside.accepted / max(1, before.accepted)
        for before, beside in zip(alone.others, flooded.others, strict=True)
    ]
    slow = {}
    for kind, opening in _SLOW.items():
        async with _held(ltzd.port, SLOW, opening):
            slow[kind] = _Shown(kind, await _send(ltzd, [_events(ltzd, rate)], seconds)).events
    return {
        "peak": peak.as_json(),
        "rate": rate,
        "normal": msgspec.to_builtins(normal),
        "over": [msgspec.to_builtins(outcome) for outcome in over.all],
        "recovery_seconds": _seconds_until_as_before(recovery, normal),
        "recovery": msgspec.to_builtins(recovery),
        "shares": shares,
        "flooded": [msgspec.to_builtins(outcome) for outcome in flooded.all],
        "slow": {kind: msgspec.to_builtins(outcome) for kind, outcome in slow.items()},
    }


class _Shown:
    """The outcomes of one side, which it prints."""

    def __init__(self, side: str, outcomes: list[Outcome]) -> None:
        self.all = outcomes
        for outcome in outcomes:
            print(
                f"  {side:15} {outcome.name:8} {outcome.per_second:7,.0f}/s of "
                f"{outcome.sent:7,}  p50 {outcome.p50_ms:7.1f}  p99 {outcome.p99_ms:7.1f} ms  "
                f"refused in {outcome.refused_p99_ms:6.1f} ms  late {outcome.late_p99_ms:6.1f} ms  "
                f"{outcome.statuses}  "
                f"unhinted {outcome.unhinted}  lost {outcome.lost}  "
                f"generator {outcome.generator_share:.0%}",
                flush=True,
            )

    @property
    def events(self) -> Outcome:
        return self.all[0]

    @property
    def others(self) -> list[Outcome]:
        return [outcome for outcome in self.all if outcome.name.startswith("other")]


def _events(
    brand: Instance, per_second: float, name: str = "events", connections: int = 256
) -> Stream:
    requests = brand.events(range(USERS), instance.UNREWARDED)
    return Stream(name, requests, per_second, brand.port, connections)


async def _send(ltzd: Instance, streams: list[Stream], seconds: float) -> list[Outcome]:
    """With ten requests a second to the health endpoint and to the admin port."""
    admin = int(ltzd.dev_json["adminUrl"].rpartition(":")[2])
    health = [load.get(ltzd.port, "/service-api/health")]
    watched = [
        Stream("health", health, 10.0, ltzd.port, 8),
        Stream("admin", [load.get(admin, "/healthz")], 10.0, admin, 8),
    ]
    return await flood.measure(Flood([*streams, *watched], seconds, warm_up_seconds=1.0))


async def _recovery(ltzd: Instance, rate: float) -> Outcome:
    """The sustainable rate as soon as the overload is over, counted from its first second on."""
    outcomes = await flood.measure(Flood([_events(ltzd, rate)], 12.0))
    return _Shown("recovery", outcomes).events


def _seconds_until_as_before(recovery: Outcome, normal: Outcome) -> int:
    """Seconds until one in which nothing is refused or slow."""
    for second, (_, refused, slowest_ms) in enumerate(recovery.by_second):
        if not refused and slowest_ms <= 4 * normal.p99_ms:
            return second
    return len(recovery.by_second)


@asynccontextmanager
async def _held(port: int, count: int, opening: bytes) -> AsyncIterator[None]:
    """So many connections that have sent these bytes, and read nothing, until the block ends."""
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(opening)
        writers.append(writer)
    try:
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


_HEAD = b"POST /service-api/manual-event HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
_SLOW = {
    "slow heads": _HEAD,
    "slow bodies": _HEAD + b"Content-Length: 500\r\n\r\n{",
    "huge heads": _HEAD + b"X-Padding: " + b"a" * 30_000,
    "pipelining": b"GET /docs/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 200,
}


async def _idle_connections(ltzd: Instance, rate: float, seconds: float) -> dict[str, Any]:
    process = psutil.Process(ltzd.pid)
    before = process.memory_info().rss
    normal = _Shown("before idle", await _send(ltzd, [_events(ltzd, rate)], seconds)).events
    async with _held(ltzd.port, IDLE, b""):
        held = process.memory_info().rss
        idle = _Shown("10,000 idle", await _send(ltzd, [_events(ltzd, rate)], seconds)).events
    return {
        "connections": IDLE,
        "mib": (held - before) / MIB,
        "normal": msgspec.to_builtins(normal),
        "idle": msgspec.to_builtins(idle),
    }


def _measurements(measured: list[dict[str, Any]], idle: dict[str, Any]) -> list[Measurement]:
    def ratio(of: Callable[[dict[str, Any]], float]) -> tuple[float, ...]:
        return tuple(of(round_) for round_ in measured)

    last = measured[len(measured) // 2]
    over, normal = last["over"][0], last["normal"]
    refused = sum(count for status, count in over["statuses"].items() if status in {"429", "503"})
    return [
        Ratio(
            name="overload: p99 of accepted events at 5 times the sustainable rate ÷ at that rate",
            rounds=ratio(lambda each: each["over"][0]["p99_ms"] / each["normal"]["p99_ms"]),
            must=4,
            is_lower_better=True,
            figures=f"{over['p99_ms']:.0f} ÷ {normal['p99_ms']:.0f} ms; {refused:,} of "
            f"{over['sent']:,} refused, {over['unhinted']} without Retry-After",
        ),
        Ratio(
            name="overload: events accepted a second at 5 times the sustainable rate ÷ that rate",
            rounds=ratio(lambda each: each["over"][0]["per_second"] / each["rate"]),
            figures=f"{over['per_second']:,.0f} ÷ {last['rate']:,.0f} a second",
        ),
        Ratio(
            name="overload: another brand's events beside a flood ÷ without it (the least of four)",
            rounds=ratio(lambda each: min(each["shares"])),
            must=0.8,
            figures=", ".join(f"{share:.2f}" for share in last["shares"]),
        ),
        Figure(
            name="overload: seconds until all is as before",
            figures=", ".join(str(each["recovery_seconds"]) for each in measured) + " (≤ 10)",
        ),
        *(
            Ratio(
                name=f"overload: p99 at the sustainable rate beside {SLOW} connections of "
                f"{kind} ÷ without",
                rounds=ratio(
                    lambda each, kind=kind: (  # type: ignore[misc]
                        each["slow"][kind]["p99_ms"] / each["normal"]["p99_ms"]
                    )
                ),
                must=4,
                is_lower_better=True,
                figures=f"{last['slow'][kind]['accepted']:,} of {last['slow'][kind]['sent']:,} "
                "accepted",
            )
            for kind in _SLOW
        ),
        Ratio(
            name="overload: p99 beside 10,000 idle connections ÷ without",
            rounds=(idle["idle"]["p99_ms"] / idle["normal"]["p99_ms"],),
            must=4,
            is_lower_better=True,
            figures=f"{idle['idle']['accepted']:,} of {idle['idle']['sent']:,} accepted; "
            f"{idle['mib']:.0f} MiB",
        ),
    ]
