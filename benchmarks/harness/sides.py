"""One side of a benchmark: runs a load, checks its answers and prints its figures."""

from benchmarks.harness import instance, load
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Load, Plan

CLIENTS = 64
USERS = 5_000
WARM_UP_SECONDS = 1.0


async def timed(
    side: str,
    port: int,
    requests: list[str],
    seconds: float,
    must_hold: str,
    *,
    queued_if: str = "",
    clients: int = CLIENTS,
    events: int = 1,
) -> Load:
    """Sends the requests in turn until the time is up; `load.Plan` describes the options."""
    plan = Plan(
        port=port,
        requests=requests,
        clients=clients,
        warm_up_seconds=WARM_UP_SECONDS,
        seconds=seconds,
        must_hold=must_hold,
        queued_if=queued_if,
        events=events,
    )
    measured = check(await load.measure(plan))
    show(side, measured)
    return measured


async def first_events(ltzd: Instance, users: int) -> Load:
    """Sends every user's first event, for which the sandbox creates a wallet."""
    plan = Plan(
        port=ltzd.port,
        requests=ltzd.events(range(users)),
        clients=CLIENTS,
        must_hold=instance.HASH_IN_ANSWER,
    )
    new_users = check(await load.measure(plan))
    show("new users", new_users)
    await ltzd.settle()
    return new_users


def check(measured: Load) -> Load:
    if measured.errors:
        print(f"  {measured.errors} errors, the first: {measured.first_error}", flush=True)
    if not measured.accepted:
        raise SystemExit("nothing was accepted")
    return measured


def show(side: str, measured: Load) -> None:
    print(
        f"  {side:14} {measured.per_second:8,.0f}/s  p50 {measured.p50_ms:6.2f} ms  "
        f"p99 {measured.p99_ms:6.2f} ms  queued {measured.queued}  errors {measured.errors}  "
        f"generator {measured.generator_share:.0%}",
        flush=True,
    )
