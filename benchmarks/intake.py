"""Events accepted a second, durable and with their mint's hash, compared with Sanic's hello."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.harness import identity_provider, instance, load, processes, resources, results
from benchmarks.harness.identity_provider import DELAY_SECONDS, MOST_PLACES
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Load, Plan
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.sides import USERS, check, first_events, show, timed

SLOWLY_MADE = 2_000
"""Events of new users of a slow provider, in each round."""
SLOW_CLIENTS = MOST_PLACES * 3 // 2
"""A client takes a place at the provider for a part of its event's time only: with as many clients
as places, some places would be empty at any moment."""


@dataclass(frozen=True, slots=True)
class Round:
    """`recorded` events earn nothing and are answered after their commit; `minted` ones with their
    mint's hash. `cpu`: microseconds of each program for one of the latter.
    """

    hello: Load
    recorded: Load
    minted: Load
    cpu: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        return {
            "hello": self.hello.as_json(),
            "recorded": self.recorded.as_json(),
            "minted": self.minted.as_json(),
            "cpu_microseconds_per_event": self.cpu,
        }


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        folder = Path(name)
        async with instance.started(folder) as ltzd, processes.hello(folder) as hello_port:
            new_users = await first_events(ltzd, USERS)
            measured = [await _round(ltzd, hello_port, seconds) for _ in range(rounds)]
            slowly_made = await _slowly_made(ltzd, rounds)
    measurements = [*_measurements(measured, new_users), _beside_provider(slowly_made)]
    details = {
        "new_users": new_users.as_json(),
        "new_users_of_a_slow_provider": [each.as_json() for each in slowly_made],
        "rounds": [round_.as_json() for round_ in measured],
    }
    results.record("intake", measurements, details, in_document=in_document)


@dataclass(frozen=True, slots=True)
class SlowlyMade:
    """`load` are events of new users while each of the provider's answers takes its time; `calls`
    counts its answers."""

    load: Load
    calls: int

    @property
    def allowed_per_second(self) -> float:
        """The wallets that the provider's time allows, with all places taken."""
        return MOST_PLACES / (self.calls / self.load.recorded * DELAY_SECONDS)

    def as_json(self) -> dict[str, Any]:
        return {"load": self.load.as_json(), "calls": self.calls}


async def _slowly_made(ltzd: Instance, rounds: int) -> list[SlowlyMade]:
    async with aiohttp.ClientSession() as client:
        await identity_provider.slow_down(ltzd, client)
        measured = []
        for number in range(rounds):
            first = USERS + number * SLOWLY_MADE
            before = await identity_provider.count_calls(ltzd, client)
            plan = Plan(
                port=ltzd.port,
                requests=ltzd.events(range(first, first + SLOWLY_MADE)),
                clients=SLOW_CLIENTS,
                must_hold=instance.HASH_IN_ANSWER,
            )
            measured_load = check(await load.measure(plan))
            show("slowly made", measured_load)
            await ltzd.settle()
            calls = await identity_provider.count_calls(ltzd, client) - before
            measured.append(SlowlyMade(measured_load, calls))
    return measured


async def _round(ltzd: Instance, hello_port: int, seconds: float) -> Round:
    """Measures both sides in turn; ltzd is idle while hello is measured."""
    hello = await timed("hello", hello_port, [load.get(hello_port, "/")], seconds, "hello")
    unrewarded = ltzd.events(range(USERS), instance.UNREWARDED)
    recorded = await timed("recorded", ltzd.port, unrewarded, seconds, instance.RECORDED)
    programs = resources.programs(ltzd.pid, ltzd.data_dir, ltzd.anvil_pid)
    before = resources.cpu_seconds(programs)
    rewarded = ltzd.events(range(USERS))
    minted = await timed("minted", ltzd.port, rewarded, seconds, instance.HASH_IN_ANSWER)
    await ltzd.settle()
    after = resources.cpu_seconds(programs)
    cpu = {name: 1e6 * (after[name] - before[name]) / minted.recorded for name in after}
    print(
        "            CPU µs an event with its mint:",
        ", ".join(f"{name} {used:.0f}" for name, used in cpu.items()),
    )
    return Round(hello, recorded, minted, cpu)


def _measurements(measured: list[Round], new_users: Load) -> list[Measurement]:
    return [
        *_beside_hello("durable event intake", measured, lambda round_: round_.recorded),
        *_beside_hello(
            "events answered with their mint's hash", measured, lambda round_: round_.minted
        ),
        Figure(
            name="events of new users, whose wallets the sandbox makes",
            figures=(
                f"{new_users.per_second:,.0f} a second, p50 {new_users.p50_ms:.0f}, "
                f"p99 {new_users.p99_ms:.0f} ms"
            ),
        ),
    ]


def _beside_provider(measured: list[SlowlyMade]) -> Ratio:
    shares = [each.load.per_second / each.allowed_per_second for each in measured]
    typical = measured[shares.index(sorted(shares)[len(shares) // 2])]
    return Ratio(
        name="events of new users a second ÷ what the identity provider's own time allows",
        rounds=tuple(shares),
        must=0.7,
        figures=(
            f"{typical.load.per_second:,.0f} ÷ {typical.allowed_per_second:,.0f} a second: "
            f"{typical.calls / typical.load.recorded:g} requests a wallet of "
            f"{DELAY_SECONDS * 1000:.0f} ms, {MOST_PLACES} at once; {SLOW_CLIENTS} clients, "
            f"p50 {typical.load.p50_ms:.0f} ms"
        ),
    )


def _beside_hello(
    name: str, measured: list[Round], side: Callable[[Round], Load]
) -> tuple[Ratio, Ratio]:
    middle = sorted(measured, key=lambda round_: side(round_).per_second / round_.hello.per_second)
    typical = middle[len(middle) // 2]
    ours, hello = side(typical), typical.hello
    return (
        Ratio(
            name=f"{name} ÷ bare Sanic hello, 64 clients",
            rounds=tuple(side(round_).per_second / round_.hello.per_second for round_ in measured),
            must=0.20,
            aim=0.35,
            figures=f"{ours.per_second:,.0f} ÷ {hello.per_second:,.0f} a second",
        ),
        Ratio(
            name=f"{name}: p99 ÷ hello p99, 64 clients",
            rounds=tuple(side(round_).p99_ms / round_.hello.p99_ms for round_ in measured),
            must=4,
            aim=2,
            is_lower_better=True,
            figures=(
                f"{ours.p99_ms:.1f} ÷ {hello.p99_ms:.1f} ms "
                f"(p50 {ours.p50_ms:.1f} and {hello.p50_ms:.1f} ms)"
            ),
        ),
    )
