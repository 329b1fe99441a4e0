"""Mixed traffic while a seeded schedule of faults runs: kills, lost sessions, bad nodes, reorgs.

The seed and the schedule are printed; LTZD_TEST_SEED repeats a schedule, and LTZD_SOAK_SECONDS
sets its length.
"""

import asyncio
import os
import random
import time
from dataclasses import dataclass

import pytest

from tests.support.chain.faulty_node import named
from tests.support.instances.load import a_load
from tests.support.instances.untrusted_nodes import Sites, UntrustedNodes, sites

__all__ = ["sites"]

SOAK_SECONDS = float(os.environ.get("LTZD_SOAK_SECONDS") or 0)
"""The length of `make soak`, whose seed is new each time; 0 in `make test`."""

SHORT_SECONDS = 6.0
SHORT_SEED = 1
CLIENTS = 4
MOST_RELAYS = 100
SETTLED_SECONDS = 120.0
NODE_FAULTS = sorted({**named.CONNECTION, **named.VIEWS})


@dataclass(frozen=True)
class Step:
    """A fault, the seconds that it lasts, and the seconds of health after it."""

    fault: str
    node_fault: str
    lasts: float
    rests: float

    def sentence(self) -> str:
        name = f"the node is {self.node_fault}" if self.fault == "node" else self.fault
        return f"{name}, for {self.lasts:.1f} s, then {self.rests:.1f} s of health"


async def _kill(site: UntrustedNodes, step: Step) -> None:
    await site.kill_and_start()


async def _lose_sessions(site: UntrustedNodes, step: Step) -> None:
    async with site.instance.database() as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def _reorg(site: UntrustedNodes, step: Step) -> None:
    await site.rpc("anvil_reorg", 2, [])


async def _disturb_a_node(site: UntrustedNodes, step: Step) -> None:
    await named.ALL[step.node_fault](site.nodes[0])
    await asyncio.sleep(step.lasts)
    await site.recover()


FAULTS = {
    "kill -9 of ltzd": _kill,
    "all sessions of PostgreSQL end": _lose_sessions,
    "a reorg of 2 blocks": _reorg,
    "node": _disturb_a_node,
}


def schedule(seed: int, seconds: float) -> list[Step]:
    """The steps of at least so many seconds; the first steps have each fault once."""
    draw = random.Random(seed)
    first = draw.sample(sorted(FAULTS), len(FAULTS))
    steps: list[Step] = []
    while len(steps) < len(first) or sum(step.lasts + step.rests for step in steps) < seconds:
        fault = first[len(steps)] if len(steps) < len(first) else draw.choice(sorted(FAULTS))
        lasts = draw.uniform(0.5, 2.0) if fault == "node" else 0.0
        steps.append(Step(fault, draw.choice(NODE_FAULTS), lasts, draw.uniform(0.5, 3.0)))
    return steps


def test_a_seed_repeats_its_schedule() -> None:
    assert schedule(7, 60) == schedule(7, 60)
    assert schedule(7, 60) != schedule(8, 60)
    assert {step.fault for step in schedule(7, 0)} == FAULTS.keys()


@pytest.mark.parametrize("count", [2])
async def test_nothing_accepted_is_lost_or_doubled_by_a_schedule_of_faults(
    sites: Sites, count: int
) -> None:
    seed = int(os.environ.get("LTZD_TEST_SEED") or 0) or (
        time.time_ns() if SOAK_SECONDS else SHORT_SEED
    )
    print(f"seed {seed}")
    site = await sites.of("tester", count)
    async with site.blocks(), asyncio.TaskGroup() as relaying:
        async with a_load(site.instance, CLIENTS) as load:
            for step in schedule(seed, SOAK_SECONDS or SHORT_SECONDS):
                print(step.sentence())
                if len(site.asks) < MOST_RELAYS:
                    ask = await site.a_transfer()
                    relaying.create_task(ask.outcome(site.relays, SETTLED_SECONDS))
                await FAULTS[step.fault](site, step)
                await asyncio.sleep(step.rests)
        await site.recovered()
        site.answers += load.accepted
        await site.settle(SETTLED_SECONDS)
    print(
        f"{len(load.accepted)} events accepted, {len(load.unknown)} without an answer,"
        f" {len(site.asks)} relays, statuses {sorted(load.statuses())}"
    )
    assert load.accepted
