"""Durable events compared with the usual FastAPI and SQLAlchemy endpoint that checks the same.

Each side is one process on a PostgreSQL of its own, and has had an event of every user before.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import instance, load, results
from benchmarks.harness.instance import EVENT_PATH, Instance
from benchmarks.harness.load import Load, Plan
from benchmarks.harness.processes import running_program, until_it_listens
from benchmarks.harness.results import Ratio
from benchmarks.harness.sides import CLIENTS, check, first_events, timed
from ltzd.dev.services import postgres
from ltzd.dev.services.ports import free_port

USERS = 2_000
ROOT = Path(__file__).parents[2]
_PROGRAM = Path(__file__).with_name("fastapi_events.py")


@dataclass(frozen=True, slots=True)
class Round:
    usual: Load
    ours: Load


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        folder = Path(name)
        async with instance.started(folder) as ltzd, _usual(folder) as port:
            await first_events(ltzd, USERS)
            bodies = ltzd.event_bodies(range(USERS), instance.UNREWARDED)
            usual = [load.post(port, EVENT_PATH, body) for body in bodies]
            plan = Plan(port=port, requests=usual, clients=CLIENTS, must_hold=instance.RECORDED)
            check(await load.measure(plan))
            measured = [await _round(ltzd, port, usual, seconds) for _ in range(rounds)]
    sides = [{"usual": each.usual.as_json(), "ours": each.ours.as_json()} for each in measured]
    details = {"rounds": sides}
    results.record("event-peers", _measurements(measured), details, in_document=in_document)


async def _round(ltzd: Instance, port: int, usual: list[str], seconds: float) -> Round:
    ours = ltzd.events(range(USERS), instance.UNREWARDED)
    return Round(
        await timed("FastAPI", port, usual, seconds, instance.RECORDED),
        await timed("ltzd", ltzd.port, ours, seconds, instance.RECORDED),
    )


@asynccontextmanager
async def _usual(folder: Path) -> AsyncIterator[int]:
    """The usual endpoint; gives its port."""
    data, log, port = folder / "peer", folder / "peer.log", free_port()
    data.mkdir()
    server = await postgres.start(data)
    url = server.url.replace("postgresql://", "postgresql+asyncpg://", 1)
    command = [str(ROOT / "scripts/with-environment"), "peers", "python", str(_PROGRAM)]
    try:
        async with running_program([*command, url, str(port)], log) as process:
            await until_it_listens(process, port, log)
            await asyncio.sleep(1)
            yield port
    finally:
        await postgres.stop(data)


def _measurements(measured: list[Round]) -> list[Ratio]:
    middle = sorted(measured, key=lambda each: each.ours.per_second / each.usual.per_second)
    typical = middle[len(middle) // 2]
    ours, usual = typical.ours, typical.usual
    return [
        Ratio(
            name="durable events ÷ FastAPI and SQLAlchemy with the same checks, 64 clients",
            rounds=tuple(each.ours.per_second / each.usual.per_second for each in measured),
            figures=f"{ours.per_second:,.0f} ÷ {usual.per_second:,.0f} a second",
        ),
        Ratio(
            name="durable events: p99 ÷ that of FastAPI and SQLAlchemy, 64 clients",
            rounds=tuple(each.ours.p99_ms / each.usual.p99_ms for each in measured),
            is_lower_better=True,
            figures=f"{ours.p99_ms:.1f} ÷ {usual.p99_ms:.1f} ms",
        ),
    ]
