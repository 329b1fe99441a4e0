"""Events accepted a second, each durable and with its mint's hash, beside Sanic's bare hello."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import instance, load, processes, resources, results
from benchmarks.instance import Instance
from benchmarks.load import Load, Plan
from benchmarks.results import Figure, Found, Ratio

CLIENTS = 64
USERS = 5_000
WARM_UP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Round:
    """`cpu`: microseconds of each program for one accepted event."""

    hello: Load
    intake: Load
    cpu: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        return {
            "hello": self.hello.as_json(),
            "intake": self.intake.as_json(),
            "cpu_microseconds_per_event": self.cpu,
        }


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        folder = Path(name)
        async with instance.started(folder) as ltzd, processes.hello(folder) as hello_port:
            newcomers = await first_events(ltzd, USERS)
            measured = [await _round(ltzd, hello_port, seconds) for _ in range(rounds)]
    found = _found(measured, newcomers)
    details = {
        "new_users": newcomers.as_json(),
        "rounds": [one.as_json() for one in measured],
    }
    results.record("intake", found, details, in_document=in_document)


async def first_events(ltzd: Instance, users: int) -> Load:
    """Every user's first event, for which the sandbox makes a wallet."""
    plan = Plan(
        port=ltzd.port,
        requests=ltzd.events(range(users)),
        clients=CLIENTS,
        must_hold=instance.HASH_IN_ANSWER,
    )
    newcomers = check(await load.measure(plan))
    show("new users", newcomers)
    await ltzd.settle()
    return newcomers


async def _round(ltzd: Instance, hello_port: int, seconds: float) -> Round:
    """Both sides, one after the other; ltzd has nothing left to do while hello is measured."""
    hello = check(
        await load.measure(
            Plan(
                port=hello_port,
                requests=[load.get(hello_port, "/")],
                clients=CLIENTS,
                warm_up_seconds=WARM_UP_SECONDS,
                seconds=seconds,
                must_hold="hello",
            )
        )
    )
    show("hello", hello)
    those = resources.programs(ltzd.pid, ltzd.data_dir)
    before = resources.cpu_seconds(those)
    intake = check(
        await load.measure(
            Plan(
                port=ltzd.port,
                requests=ltzd.events(range(USERS)),
                clients=CLIENTS,
                warm_up_seconds=WARM_UP_SECONDS,
                seconds=seconds,
                must_hold=instance.HASH_IN_ANSWER,
            )
        )
    )
    show("intake", intake)
    await ltzd.settle()
    after = resources.cpu_seconds(those)
    cpu = {name: 1e6 * (after[name] - before[name]) / intake.recorded for name in after}
    print(
        "            CPU µs an event:",
        ", ".join(f"{name} {used:.0f}" for name, used in cpu.items()),
    )
    return Round(hello, intake, cpu)


def check(measured: Load) -> Load:
    if measured.errors:
        print(f"  {measured.errors} errors, the first: {measured.first_error}", flush=True)
    if not measured.accepted:
        raise SystemExit("nothing was accepted")
    return measured


def show(side: str, measured: Load) -> None:
    print(
        f"  {side:9} {measured.per_second:8,.0f}/s  p50 {measured.p50_ms:6.2f} ms  "
        f"p99 {measured.p99_ms:6.2f} ms  queued {measured.queued}  errors {measured.errors}  "
        f"generator {measured.generator_share:.0%}",
        flush=True,
    )


def _found(measured: list[Round], newcomers: Load) -> list[Found]:
    middle = sorted(measured, key=lambda one: one.intake.per_second / one.hello.per_second)
    typical = middle[len(middle) // 2]
    return [
        Ratio(
            name="durable event intake ÷ bare Sanic hello, 64 clients",
            rounds=tuple(one.intake.per_second / one.hello.per_second for one in measured),
            must=0.20,
            aim=0.35,
            figures=f"{typical.intake.per_second:,.0f} ÷ {typical.hello.per_second:,.0f} a second",
        ),
        Ratio(
            name="intake p99 ÷ hello p99, 64 clients",
            rounds=tuple(one.intake.p99_ms / one.hello.p99_ms for one in measured),
            must=4,
            aim=2,
            is_lower_better=True,
            figures=(
                f"{typical.intake.p99_ms:.1f} ÷ {typical.hello.p99_ms:.1f} ms "
                f"(p50 {typical.intake.p50_ms:.1f} and {typical.hello.p50_ms:.1f} ms)"
            ),
        ),
        Figure(
            name="events of new users, whose wallets the sandbox makes",
            figures=(
                f"{newcomers.per_second:,.0f} a second, p50 {newcomers.p50_ms:.0f}, "
                f"p99 {newcomers.p99_ms:.0f} ms"
            ),
        ),
    ]
