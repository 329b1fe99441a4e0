"""Relayed calls a second, compared with the usual web3.py loop and with anvil's limit.

The benchmark also measures the time until publication. The call is LTZ's transferWithAuthorization
of many users, which is not serialized.

The sides of a round are measured one after the other, on chains with one-second blocks that an
ltzd follows: lone relays, the sides without ltzd's relayer, and flights have a new instance and
chain each. Blocks of thousands of transactions, which anvil alone makes, keep it busy for seconds
each once ltzd's audit asks for their receipts, and no relay causes that.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import publication, relay_calls
from benchmarks.harness import blocks, instance, load, resources, results
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Load, Plan
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.sides import check, first_events, show
from benchmarks.limits import inclusion, inserts, usual_relayer
from benchmarks.limits.inclusion import Included
from benchmarks.limits.inserts import Inserted
from benchmarks.limits.usual_relayer import Relayed
from benchmarks.publication import Published
from benchmarks.relay_calls import Calls
from ltzd.chain.node.rpc import Rpc
from ltzd.values import hex_of

MANY, SOME, USUAL = 4_000, 500, 64
"""The number in flight; the usual loop does not get faster with more."""
RELAYED = 10 * MANY
"""The number relayed with MANY in flight. A fixed time would count one wave more or less."""
WARM_UP_SECONDS = 3.0
CLAIMS = 1_000
PUBLISHED = 50
INSERT_SECONDS = 2.0
PACED_SECONDS = 30.0
"""Less than the lone relays take, beside which so long single rows are inserted."""

Measured = TypeVar("Measured", Relayed, Included, Published, Inserted)

_MOST_INCLUDED = 9_000
_MOST_USUAL = 200
"""The number of calls prepared per second, above what any side relays."""


@dataclass(frozen=True, slots=True)
class Flight:
    """`block_seconds`: from one block to the next; `cpu`: microseconds of each program a relay."""

    load: Load
    block_seconds: float
    cpu: dict[str, float]

    @property
    def per_second(self) -> float:
        return self.load.per_second

    def as_json(self) -> dict[str, Any]:
        return {
            "load": self.load.as_json(),
            "block_seconds": self.block_seconds,
            "cpu_microseconds_per_relay": self.cpu,
        }


@dataclass(frozen=True, slots=True)
class Lone:
    """Relays one at a time. `paced`: inserts at their pace; `inserted`: inserts in a row."""

    published: Published
    paced: Inserted
    inserted: Inserted

    def as_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name).as_json() for each in fields(self)}


@dataclass(frozen=True, slots=True)
class Round:
    lone: Lone
    usual: Relayed
    included: Included
    many: Flight
    few: Flight
    claims: Load

    def as_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name).as_json() for each in fields(self)}


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    measured = [await _round(seconds) for _ in range(rounds)]
    details = {"users": _users(seconds), "rounds": [round_.as_json() for round_ in measured]}
    results.record("relays", _measurements(measured), details, in_document=in_document)


async def _round(seconds: float) -> Round:
    """Measures all sides in turn; no transaction is pending before each."""
    lone = await _lone()
    async with _sides(seconds) as sides:
        usual, included = await sides.usual(), await sides.included()
    async with _sides(seconds) as sides:
        many, few, claims = await sides.many(), await sides.few(), await sides.claims()
    return Round(lone, usual, included, many, few, claims)


@asynccontextmanager
async def _sides(seconds: float) -> AsyncIterator["_Sides"]:
    """The sides on a new chain, with users of a new instance."""
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with instance.started(Path(name)) as ltzd, Rpc(ltzd.dev_json["rpcUrl"]) as rpc:
            yield _Sides(ltzd, rpc, await _calls(ltzd, _users(seconds)), seconds)


async def _calls(ltzd: Instance, users: int) -> Calls:
    await first_events(ltzd, users)
    return Calls(ltzd, await relay_calls.logged_in(ltzd, users))


async def _lone() -> Lone:
    """Measures lone relays and lone inserts together: both find cold caches."""
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with instance.started(Path(name)) as ltzd:
            users = -(-PUBLISHED // relay_calls.TRANSFERS_OF_USER)
            requests = (await _calls(ltzd, users)).transfer_requests(PUBLISHED)
            published, paced = await asyncio.gather(
                _shown("published", publication.measure(ltzd, requests)),
                _inserted(ltzd, "lone inserts", PACED_SECONDS, pause=1.0),
            )
            inserted = await _inserted(ltzd, "inserts in a row", INSERT_SECONDS)
            return Lone(published, paced, inserted)


async def _inserted(ltzd: Instance, side: str, seconds: float, pause: float = 0.0) -> Inserted:
    url = ltzd.dev_json["databaseUrl"]
    work = inserts.InsertLoad(url, 1, 1, 0.5, seconds, most_pause_seconds=pause)
    return await _shown(side, inserts.measure(work))


async def _shown(side: str, measuring: Awaitable[Measured]) -> Measured:
    measured = await measuring
    rest = " ".join(f"{name} {value:,.2f}" for name, value in measured.as_json().items())
    print(f"  {side:14} {rest}", flush=True)
    return measured


def _users(seconds: float) -> int:
    """The number of users for the flights of a round, at 35 relays an hour each."""
    return max(CLAIMS, -(-(RELAYED + _few(seconds)) // relay_calls.TRANSFERS_OF_USER))


def _few(seconds: float) -> int:
    return int((WARM_UP_SECONDS + seconds + 2) * SOME)


class _Sides:
    def __init__(self, ltzd: Instance, rpc: Rpc, calls: Calls, seconds: float) -> None:
        self._ltzd = ltzd
        self._rpc = rpc
        self._calls = calls
        self._seconds = seconds
        self._programs = resources.programs(ltzd.pid, ltzd.data_dir, ltzd.anvil_pid)

    async def usual(self) -> Relayed:
        return await _shown(
            f"web3.py, {USUAL}",
            usual_relayer.measure(
                usual_relayer.RelayerLoad(
                    rpc_url=self._rpc.url,
                    to=hex_of(self._calls.ltz),
                    calls=self._transfers(_MOST_USUAL),
                    in_flight=USUAL,
                    warm_up_seconds=WARM_UP_SECONDS,
                    seconds=self._seconds,
                )
            ),
        )

    async def included(self) -> Included:
        return await _shown(
            "anvil alone",
            inclusion.measure(
                inclusion.InclusionLoad(
                    rpc_url=self._rpc.url,
                    to=hex_of(self._calls.ltz),
                    calls=self._transfers(_MOST_INCLUDED),
                    warm_up_seconds=WARM_UP_SECONDS,
                    seconds=self._seconds,
                )
            ),
        )

    def _transfers(self, per_second: int) -> list[str]:
        count = int((WARM_UP_SECONDS + self._seconds) * per_second)
        return [hex_of(call) for call in self._calls.transfers(count)]

    async def many(self) -> Flight:
        """Measures from the first request to the last answer."""
        requests = self._calls.transfer_requests(RELAYED)
        return await self._flight(
            Plan(
                port=self._ltzd.port,
                requests=requests,
                clients=MANY,
                must_hold=relay_calls.CONFIRMED,
                own_addresses=True,
            )
        )

    async def few(self) -> Flight:
        requests = self._calls.transfer_requests(_few(self._seconds))
        return await self._flight(
            Plan(
                port=self._ltzd.port,
                requests=requests,
                clients=SOME,
                warm_up_seconds=WARM_UP_SECONDS,
                seconds=self._seconds,
                must_hold=relay_calls.CONFIRMED,
                own_addresses=True,
            )
        )

    async def _flight(self, plan: Plan) -> Flight:
        before = resources.cpu_seconds(self._programs)
        async with blocks.watched(self._rpc) as seen:
            measured = check(await load.measure(plan))
        await self._settled()
        after = resources.cpu_seconds(self._programs)
        show(f"{plan.clients} in flight", measured)
        flight = Flight(
            load=measured,
            block_seconds=seen.interval(measured.began, measured.began + measured.seconds),
            cpu={name: 1e6 * (after[name] - before[name]) / measured.recorded for name in after},
        )
        used = ", ".join(f"{name} {microseconds:.0f}" for name, microseconds in flight.cpu.items())
        print(
            f"                 a block in {flight.block_seconds:.2f} s; CPU µs a relay: {used}",
            flush=True,
        )
        return flight

    async def claims(self) -> Load:
        plan = Plan(
            port=self._ltzd.port,
            requests=self._calls.claim_requests(CLAIMS),
            clients=SOME,
            must_hold=relay_calls.CONFIRMED,
            own_addresses=True,
        )
        measured = check(await load.measure(plan))
        show("claims", measured)
        await self._settled()
        return measured

    async def _settled(self) -> None:
        """Waits until the operator has nothing in flight and ltzd has recorded it."""
        await inclusion.until_mined(self._rpc, self._ltzd.dev_json["operator"])
        await asyncio.sleep(2 * instance.BLOCK_SECONDS)


def _measurements(measured: list[Round]) -> list[Measurement]:
    flights = f"{MANY:,} in flight"
    return [
        _ratio(
            f"relayed calls, {flights} ÷ the usual web3.py loop, {USUAL} in flight",
            measured,
            lambda round_: (round_.many.per_second, round_.usual.per_second),
            lambda round_: (
                f"{round_.many.per_second:,.0f} ÷ {round_.usual.per_second:,.0f} a second "
                f"(confirmed p50 {round_.many.load.p50_ms:,.0f} and {round_.usual.p50_ms:,.0f} ms)"
            ),
            bounds=(10, 25),
        ),
        _ratio(
            f"relayed calls, {flights} ÷ what anvil mines of them signed before, in batches",
            measured,
            lambda round_: (round_.many.per_second, round_.included.per_second),
            lambda round_: (
                f"{round_.many.per_second:,.0f} ÷ {round_.included.per_second:,.0f} a second"
            ),
            bounds=(0.35, 0.6),
        ),
        _ratio(
            f"relay confirmed p50, {SOME} in flight ÷ time from block to block",
            measured,
            lambda round_: (round_.few.load.p50_ms / 1000, round_.few.block_seconds),
            lambda round_: (
                f"{round_.few.load.p50_ms:,.0f} ÷ {1000 * round_.few.block_seconds:,.0f} ms; "
                f"{round_.few.per_second:,.0f} a second"
            ),
            bounds=(1.25, 1.05),
            is_lower_better=True,
        ),
        _ratio(
            "relay published p50, one in flight ÷ PostgreSQL insert of one row p50",
            measured,
            lambda round_: (round_.lone.published.p50_ms, round_.lone.inserted.p50_ms),
            lambda round_: _lone_figures(round_.lone),
            bounds=(15, 7),
            is_lower_better=True,
        ),
        Figure(
            name=f"claims of {CLAIMS:,} users, {SOME} in flight",
            figures=_middle(
                measured,
                lambda round_: round_.claims.p50_ms,
                lambda round_: (
                    f"confirmed p50 {round_.claims.p50_ms:,.0f}, p99 {round_.claims.p99_ms:,.0f} ms"
                ),
            ),
        ),
        Figure(
            name=f"CPU time of a relayed call, {flights}",
            figures=_middle(measured, lambda round_: round_.many.cpu[resources.LTZD], _cpu),
        ),
    ]


def _lone_figures(lone: Lone) -> str:
    published = lone.published
    return (
        f"{published.p50_ms:.2f} ÷ {lone.inserted.p50_ms:.2f} ms "
        f"(p90 {published.p90_ms:.0f}, p99 {published.p99_ms:.0f} ms); "
        f"an insert at the relays' pace takes {lone.paced.p50_ms:.2f} ms"
    )


def _cpu(round_: Round) -> str:
    return ", ".join(f"{name} {used:.0f} µs" for name, used in round_.many.cpu.items())


def _middle(
    measured: list[Round], rank: Callable[[Round], float], describe: Callable[[Round], str]
) -> str:
    return describe(sorted(measured, key=rank)[len(measured) // 2])


def _ratio(
    name: str,
    measured: list[Round],
    sides: Callable[[Round], tuple[float, float]],
    describe: Callable[[Round], str],
    *,
    bounds: tuple[float, float],
    is_lower_better: bool = False,
) -> Ratio:
    def quotient(round_: Round) -> float:
        ours, theirs = sides(round_)
        return ours / theirs

    return Ratio(
        name=name,
        rounds=tuple(map(quotient, measured)),
        figures=_middle(measured, quotient, describe),
        must=bounds[0],
        aim=bounds[1],
        is_lower_better=is_lower_better,
    )
