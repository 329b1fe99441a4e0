"""Perk charge reads by brands' servers: compared with hello, by index size, and invalidation.

Every request is signed before the load with a nonce of its own, as the API requires.
"""

import random
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.harness import instance, load, processes, results
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Load
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.sides import WARM_UP_SECONDS, timed
from benchmarks.reads import invalidation
from benchmarks.reads.invalidation import Invalidated
from benchmarks.reads.perk_tokens import FEW, MANY, Filled, Tables
from ltzd.chain.node.rpc import Rpc
from ltzd.http.perk_charges.handlers import HOLDERS, STATUS
from ltzd.http.perk_charges.models import cursor_after
from ltzd.rules.request_signatures import signature
from ltzd.store.database import connect
from ltzd.values import address_of

CLIENTS = 16
PAGE = 50
BLOCKS = 100
"""The number of tokens moved in each round."""
WANTED_MS = 100.0
FULL_PAGE = f'"count":{PAGE},'
_MOST_A_SECOND = 12_000
"""The number of requests prepared per second, above what any side answers."""


@dataclass(frozen=True, slots=True)
class Round:
    """`first`, `middle` and `end` repeat one page each; `anywhere` requests any page.

    ltzd caches a repeated page until the next block; of `anywhere` hardly any page is cached.
    """

    hello: Load
    status_few: Load
    status: Load
    first_few: Load
    first: Load
    middle: Load
    end: Load
    anywhere_few: Load
    anywhere: Load
    invalidated: Invalidated

    def as_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name).as_json() for each in fields(self)}


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with _sides(Path(name), seconds) as sides:
            measured = [await sides.round() for _ in range(rounds)]
    details = {"rounds": [round_.as_json() for round_ in measured]}
    results.record("perks", _measurements(measured), details, in_document=in_document)


@asynccontextmanager
async def _sides(folder: Path, seconds: float) -> AsyncIterator["_Sides"]:
    async with (
        instance.started(folder) as ltzd,
        processes.hello(folder) as hello_port,
        Rpc(ltzd.dev_json["rpcUrl"]) as rpc,
    ):
        database = await connect(ltzd.dev_json["databaseUrl"], "benchmark")
        try:
            await invalidation.claim(ltzd)
            tables = Tables(database, address_of(ltzd.dev_json["brand"]["brandId"]))
            await tables.fill()
            yield _Sides(ltzd, hello_port, rpc, tables, seconds)
        finally:
            await database.close()


class _Sides:
    def __init__(
        self, ltzd: Instance, hello_port: int, rpc: Rpc, tables: Tables, seconds: float
    ) -> None:
        self._ltzd = ltzd
        self._hello_port = hello_port
        self._rpc = rpc
        self._tables = tables
        self._seconds = seconds

    async def round(self) -> Round:
        hello = await timed(
            "hello",
            self._hello_port,
            [load.get(self._hello_port, "/")],
            self._seconds,
            "hello",
            clients=CLIENTS,
        )
        await self._tables.show(FEW)
        status_few = await self._measure("status, 1,000", statuses(FEW), instance.RECORDED)
        first_few = await self._measure("page, 1,000", pages(FEW, 0), FULL_PAGE)
        anywhere_few = await self._measure("any, 1,000", any_pages(FEW), FULL_PAGE)
        await self._tables.show(MANY)
        return Round(
            hello=hello,
            status_few=status_few,
            first_few=first_few,
            anywhere_few=anywhere_few,
            status=await self._measure("status, 10^6", statuses(MANY), instance.RECORDED),
            first=await self._measure("page, 10^6", pages(MANY, 0), FULL_PAGE),
            middle=await self._measure("in the middle", pages(MANY, MANY.count // 2), FULL_PAGE),
            end=await self._measure("at the end", pages(MANY, MANY.count - PAGE), FULL_PAGE),
            anywhere=await self._measure("anywhere", any_pages(MANY), FULL_PAGE),
            invalidated=await self._invalidated(),
        )

    async def _measure(self, side: str, targets: Iterator[str], must_hold: str) -> Load:
        count = int((WARM_UP_SECONDS + self._seconds) * _MOST_A_SECOND)
        requests = [self._signed(target) for target in islice(targets, count)]
        measured = await timed(
            side, self._ltzd.port, requests, self._seconds, must_hold, clients=CLIENTS
        )
        if measured.errors:
            raise SystemExit("not every request was answered rightly")
        return measured

    def _signed(self, target: str) -> str:
        brand = self._ltzd.dev_json["brand"]
        timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
        made = signature(brand["securityKey"], timestamp, nonce, "GET", target.encode(), b"")
        return load.get(
            self._ltzd.port,
            target,
            f"X-LTZ-Brand-Id: {brand['brandId']}",
            f"X-LTZ-Timestamp: {timestamp}",
            f"X-LTZ-Nonce: {nonce}",
            f"X-LTZ-Signature: {made}",
        )

    async def _invalidated(self) -> Invalidated:
        measured = await invalidation.measure(self._ltzd, self._rpc, self._tables.database, BLOCKS)
        print(
            f"  {'invalidated':14} p50 {measured.p50_ms:.1f} ms  p99 {measured.p99_ms:.1f} ms",
            flush=True,
        )
        return measured


def statuses(tokens: Filled) -> Iterator[str]:
    """Status requests for these tokens in random order."""
    while True:
        token = tokens.token(random.randint(1, tokens.count))
        yield f"{STATUS}?collectionId={tokens.collection_id}&tokenId={token}"


def pages(tokens: Filled, behind: int) -> Iterator[str]:
    """The cursor of the page after the token with this number."""
    target = f"{HOLDERS}?collectionId={tokens.collection_id}&limit={PAGE}"
    if behind:
        target += f"&cursor={cursor_after(tokens.token(behind))}"
    while True:
        yield target


def any_pages(tokens: Filled) -> Iterator[str]:
    while True:
        yield next(pages(tokens, random.randint(1, tokens.count - PAGE)))


def _measurements(measured: list[Round]) -> list[Measurement]:
    return [
        _beside_hello("check-perk-status", measured, lambda round_: round_.status),
        _beside_hello(f"list-perk-holders, {PAGE} a page", measured, lambda round_: round_.first),
        _by_size("check-perk-status", measured, lambda round_: (round_.status, round_.status_few)),
        _by_size("list-perk-holders", measured, lambda round_: (round_.first, round_.first_few)),
        _by_size(
            "list-perk-holders, in the middle",
            measured,
            lambda round_: (round_.middle, round_.first_few),
        ),
        _by_size(
            "list-perk-holders, at the end", measured, lambda round_: (round_.end, round_.first_few)
        ),
        _by_size(
            "list-perk-holders, any page",
            measured,
            lambda round_: (round_.anywhere, round_.anywhere_few),
        ),
        *_of_invalidation(measured),
    ]


def _beside_hello(name: str, measured: list[Round], side: Callable[[Round], Load]) -> Ratio:
    def quotient(round_: Round) -> float:
        return side(round_).per_second / round_.hello.per_second

    typical = _middle(measured, quotient)
    return Ratio(
        name=f"{name} ÷ bare Sanic hello, {CLIENTS} clients",
        rounds=tuple(map(quotient, measured)),
        must=0.25,
        aim=0.40,
        figures=(
            f"{side(typical).per_second:,.0f} ÷ {typical.hello.per_second:,.0f} a second "
            f"(p50 {side(typical).p50_ms:.1f} and {typical.hello.p50_ms:.1f}, "
            f"p99 {side(typical).p99_ms:.1f} and {typical.hello.p99_ms:.1f} ms)"
        ),
    )


def _by_size(
    name: str, measured: list[Round], sides: Callable[[Round], tuple[Load, Load]]
) -> Ratio:
    def quotient(round_: Round) -> float:
        many, few = sides(round_)
        return many.p50_ms / few.p50_ms

    many, few = sides(_middle(measured, quotient))
    return Ratio(
        name=f"{name}: p50 on {MANY.count:,} tokens ÷ on {FEW.count:,}",
        rounds=tuple(map(quotient, measured)),
        must=2,
        is_lower_better=True,
        figures=(
            f"{many.p50_ms:.2f} ÷ {few.p50_ms:.2f} ms "
            f"({many.per_second:,.0f} and {few.per_second:,.0f} a second)"
        ),
    )


def _of_invalidation(measured: list[Round]) -> tuple[Measurement, Measurement]:
    def quotient(round_: Round) -> float:
        return round_.invalidated.p99_ms / WANTED_MS

    typical = _middle(measured, quotient).invalidated
    looks = sum(round_.invalidated.looks for round_ in measured)
    outlived = sum(round_.invalidated.outlived for round_ in measured)
    return (
        Ratio(
            name=f"a block that moves NFTs → results gone, p99 ÷ {WANTED_MS:.0f} ms",
            rounds=tuple(map(quotient, measured)),
            must=1,
            is_lower_better=True,
            figures=(
                f"p99 {typical.p99_ms:.0f}, p50 {typical.p50_ms:.0f} ms of {typical.blocks} "
                "blocks; up to 50 of it pass until ltzd asks for the next block"
            ),
        ),
        Figure(
            name="commit of that block → results gone",
            figures=(
                f"one transaction: of {looks:,} looks {outlived} saw the block and a result of "
                "before it"
            ),
        ),
    )


def _middle(measured: list[Round], rank: Callable[[Round], float]) -> Round:
    return sorted(measured, key=rank)[len(measured) // 2]
