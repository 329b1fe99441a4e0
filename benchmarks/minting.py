"""Minting under a minute of full load: whether it keeps up with intake, and the memory it needs.

The load runs without a pause, also before and after the minute. Both counts are between the first
block with mints in the minute and the first after it: events answered 200 with a hash, and LTZ
minted on the chain (its total supply; an event earns 1 LTZ). In the end every accepted event must
be minted exactly once.
"""

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import time

from benchmarks.harness import instance, load, resources, results
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Load, Plan
from benchmarks.harness.resources import Programs
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.sides import CLIENTS, USERS, check, first_events, show
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc
from ltzd.values import LTZ, address_of

WARM_UP_SECONDS = 10.0
COOL_DOWN_SECONDS = 5.0
"""A block's time, with a margin for a late block."""
IDLE_SECONDS = 3.0
_TOTAL_SUPPLY = bytes.fromhex("18160ddd")
_SUPPLY_POLL_SECONDS = 0.05
_SLOW_POLL_SECONDS = 2.0


@dataclass(slots=True)
class Seen:
    """Samples during the load; `supplies` are wall-clock time and total LTZ at each change."""

    supplies: list[tuple[float, int]] = field(default_factory=list)
    backlogs: list[tuple[float, int]] = field(default_factory=list)
    memories: list[dict[str, float]] = field(default_factory=list)

    def minute(self, began: float, ended: float) -> tuple[tuple[float, int], tuple[float, int]]:
        """The time and supply of the first blocks with mints after two times."""
        first = next(sample for sample in self.supplies if sample[0] >= began)
        last = next(sample for sample in self.supplies if sample[0] >= ended)
        return first, last

    def backlog(self, began: float, ended: float) -> float:
        return median(count for at, count in self.backlogs if began <= at <= ended)

    def peak_memory(self) -> dict[str, float]:
        return {name: max(sample[name] for sample in self.memories) for name in self.memories[0]}


async def run(*, seconds: float, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with instance.started(Path(name)) as ltzd, Rpc(ltzd.dev_json["rpcUrl"]) as rpc:
            programs = resources.programs(ltzd.pid, ltzd.data_dir, ltzd.anvil_pid)
            await asyncio.sleep(IDLE_SECONDS)
            idle = resources.memory_mib(programs)
            await first_events(ltzd, USERS)
            node = Node(rpc)
            before = await _supply(ltzd, node)
            loaded, seen = await _loaded(ltzd, node, programs, seconds)
            drain_seconds = await _drained(ltzd)
            minted = await _supply(ltzd, node) - before
    if minted != loaded.recorded:
        raise SystemExit(f"{loaded.recorded} events were accepted, {minted} rewards were minted")
    show("intake", loaded)
    details = {
        "load": loaded.as_json(),
        "supplies": seen.supplies,
        "backlogs": seen.backlogs,
        "memory_idle_mib": idle,
        "memory_peak_mib": seen.peak_memory(),
        "memory_after_mib": seen.memories[-1],
        "drain_seconds": drain_seconds,
    }
    measurements = _measurements(loaded, seen, idle, drain_seconds)
    results.record("minting", measurements, details, in_document=in_document)


async def _loaded(
    ltzd: Instance, node: Node, programs: Programs, seconds: float
) -> tuple[Load, Seen]:
    seen = Seen()
    sampling = [
        asyncio.create_task(_sample_supply(ltzd, node, seen)),
        asyncio.create_task(_sample_slowly(ltzd, programs, seen)),
    ]
    loaded = check(
        await load.measure(
            Plan(
                port=ltzd.port,
                requests=ltzd.events(range(USERS)),
                clients=CLIENTS,
                warm_up_seconds=WARM_UP_SECONDS,
                seconds=seconds,
                cool_down_seconds=COOL_DOWN_SECONDS,
                must_hold=instance.HASH_IN_ANSWER,
            )
        )
    )
    for sample in sampling:
        sample.cancel()
    await asyncio.gather(*sampling, return_exceptions=True)
    return loaded, seen


async def _drained(ltzd: Instance) -> float:
    """Seconds until everything is minted, from the end of the load on."""
    ended = time()
    await ltzd.settle()
    return time() - ended


async def _supply(ltzd: Instance, node: Node) -> int:
    answer = await node.view(address_of(ltzd.dev_json["contracts"]["LTZ"].lower()), _TOTAL_SUPPLY)
    return int.from_bytes(answer, "big") // LTZ


async def _sample_supply(ltzd: Instance, node: Node, seen: Seen) -> None:
    latest = await _supply(ltzd, node)
    while True:
        await asyncio.sleep(_SUPPLY_POLL_SECONDS)
        supply = await _supply(ltzd, node)
        if supply != latest:
            latest = supply
            seen.supplies.append((time(), supply))


async def _sample_slowly(ltzd: Instance, programs: Programs, seen: Seen) -> None:
    while True:
        seen.memories.append(resources.memory_mib(programs))
        seen.backlogs.append((time(), await ltzd.backlog()))
        await asyncio.sleep(_SLOW_POLL_SECONDS)


def _measurements(
    loaded: Load, seen: Seen, idle: Mapping[str, float], drain_seconds: float
) -> list[Measurement]:
    began, ended = loaded.began, loaded.began + loaded.seconds
    (first, supply), (last, later_supply) = seen.minute(began, ended)
    minted, accepted = later_supply - supply, loaded.accepted_between(first, last)
    third = loaded.seconds / 3
    early, late = seen.backlog(began, began + third), seen.backlog(ended - third, ended)
    peak = seen.peak_memory()
    return [
        Ratio(
            name=f"rewards minted ÷ events accepted, over {loaded.seconds:.0f} s",
            # Events accepted while a block is made are in the next one: two decimals tell enough.
            rounds=(round(minted / accepted, 2),),
            must=1,
            aim=1,
            figures=(
                f"{minted:,} ÷ {accepted:,} in {last - first:.0f} s ({loaded.per_second:,.0f} a "
                f"second); not yet minted: {early:,.0f} in the first third, {late:,.0f} in the "
                f"last, none {drain_seconds:.1f} s after the load"
            ),
        ),
        Figure(
            name="memory of ltzd, all roles and the sandbox in one process",
            figures=(
                f"{idle[resources.LTZD]:.0f} MiB idle, {peak[resources.LTZD]:.0f} MiB at most "
                "under load"
            ),
        ),
        Figure(name="memory of its services", figures=_services(idle, peak)),
    ]


def _services(idle: Mapping[str, float], peak: Mapping[str, float]) -> str:
    return ", ".join(
        f"{name} {idle[name]:.0f} and {peak[name]:.0f} MiB"
        for name in idle
        if name != resources.LTZD
    )
