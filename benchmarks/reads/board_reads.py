"""Leaderboards over HTTP beside hello: everybody asks for one board, or anybody for any board.

Callers who ask for the same board at the same time share its reads; of all the boards of a site
hardly two callers ask for the same.
"""

import random
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.harness import instance, load, processes, results
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Load
from benchmarks.harness.results import Ratio
from benchmarks.harness.sides import timed
from benchmarks.reads.leaderboard import CLIENTS, FEW, FILL
from ltzd.http.site_plugin.models import MAX_LEADERBOARD_LIMIT, METRICS
from ltzd.rules.event_handler.brand_limits import local_day
from ltzd.rules.site_plugin.leaderboards import first_day
from ltzd.store.database import connect
from ltzd.values import address_of

_RANKED = f'"total":{FEW}}}'
"""The end of each answer: the boards of the week have all members."""


@dataclass(frozen=True, slots=True)
class Round:
    """Of `any_board`, each request asks for one of METRICS, with 1 to 100 places."""

    hello: Load
    one_board: Load
    any_board: Load

    def as_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name).as_json() for each in fields(self)}


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with _sides(Path(name), seconds) as sides:
            measured = [await sides.round() for _ in range(rounds)]
    details = {"rounds": [round_.as_json() for round_ in measured]}
    ratios = [
        _beside_hello("leaderboard, the same for all", measured, lambda each: each.one_board, 0.30),
        _beside_hello("leaderboard, any of 300", measured, lambda each: each.any_board, None),
    ]
    results.record("board-reads", ratios, details, in_document=in_document)


@asynccontextmanager
async def _sides(folder: Path, seconds: float) -> AsyncIterator["_Sides"]:
    async with instance.started(folder) as ltzd, processes.hello(folder) as hello_port:
        await _rank_members(ltzd)
        yield _Sides(ltzd, hello_port, seconds)


async def _rank_members(ltzd: Instance) -> None:
    """Ranks members of the demo brand, whose site the instance serves."""
    brand = address_of(ltzd.dev_json["brand"]["brandId"])
    database = await connect(ltzd.dev_json["databaseUrl"], "benchmark")
    try:
        now = await database.fetchval("SELECT now()")
        await database.execute(FILL, brand, first_day("week", local_day(now, "UTC")), FEW)
        await database.execute("ANALYZE")
    finally:
        await database.close()


class _Sides:
    def __init__(self, ltzd: Instance, hello_port: int, seconds: float) -> None:
        self._ltzd = ltzd
        self._hello_port = hello_port
        self._seconds = seconds

    async def round(self) -> Round:
        hello = [load.get(self._hello_port, "/")]
        return Round(
            hello=await timed(
                "hello", self._hello_port, hello, self._seconds, "hello", clients=CLIENTS
            ),
            one_board=await self._measure("one board", [self._board("")]),
            any_board=await self._measure("any board", self._boards()),
        )

    async def _measure(self, side: str, requests: list[str]) -> Load:
        measured = await timed(
            side, self._ltzd.port, requests, self._seconds, _RANKED, clients=CLIENTS
        )
        if measured.errors:
            raise SystemExit("not every request was answered rightly")
        return measured

    def _boards(self) -> list[str]:
        queries = [
            f"?metric={metric}&limit={limit}"
            for metric in METRICS
            for limit in range(1, MAX_LEADERBOARD_LIMIT + 1)
        ]
        random.shuffle(queries)
        return list(map(self._board, queries))

    def _board(self, query: str) -> str:
        site = self._ltzd.dev_json["site"]
        path = f"/{site['restPrefix']}/{site['namespace']}/v1/leaderboard{query}"
        return load.get(self._ltzd.port, path, host=site["host"])


def _beside_hello(
    name: str, measured: Sequence[Round], side: Callable[[Round], Load], must: float | None
) -> Ratio:
    def quotient(round_: Round) -> float:
        return side(round_).per_second / round_.hello.per_second

    typical = sorted(measured, key=quotient)[len(measured) // 2]
    return Ratio(
        name=f"{name} ÷ bare Sanic hello, {CLIENTS} clients",
        rounds=tuple(map(quotient, measured)),
        must=must,
        figures=(
            f"{side(typical).per_second:,.0f} ÷ {typical.hello.per_second:,.0f} a second "
            f"(p50 {side(typical).p50_ms:.1f} and {typical.hello.p50_ms:.1f}, "
            f"p99 {side(typical).p99_ms:.1f} and {typical.hello.p99_ms:.1f} ms)"
        ),
    )
