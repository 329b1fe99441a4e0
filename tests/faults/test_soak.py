"""Traffic at all surfaces while a seeded schedule of faults runs; afterwards the books balance.

The seed and the steps are printed. `make soak SEED=… SECONDS=… CHAIN=…` sets them. From five
minutes on, memory, files, tasks and sessions of undisturbed processes are also compared.
"""

import asyncio
import os
import time
from collections import Counter

import pytest

from tests.support.cluster.cluster import Shape, a_cluster
from tests.support.cluster.inbox import assert_announced
from tests.support.cluster.traffic import a_traffic
from tests.support.commands import ltzd
from tests.support.instances.perks import perks_of
from tests.support.instances.relayer import relays_of
from tests.support.soak.footprint import footprint
from tests.support.soak.schedule import KILL, Faults, schedule
from tests.support.soak.site import BLOCKS_OF_A_REORG, LONGEST_SECONDS, SoakSite, a_soak_site
from tests.support.soak.traffic import CHARGES, Traffic, traffic_on_all_surfaces
from tests.support.waiting import until

SOAK_SECONDS = float(os.environ.get("LTZD_SOAK_SECONDS") or 0)
"""The length of `make soak`, whose seed is new each time; 0 in `make test`."""
CHAIN = os.environ.get("LTZD_SOAK_CHAIN") or "anvil"

SHORT_SEED = 1
LONG_SECONDS = 300.0
WARM_UP_SECONDS = 240.0
"""The indexer's first audit takes 20 MiB for good, and has ended by then."""
MEASURED_PART = 0.4
"""Of the seconds of a long run, the time between the two measurements of undisturbed processes."""
ONE_OF_EACH = Shape(1, (("operator", "indexer", "deliveries"),))
USERS = 4
CLIENTS = 2
TOKENS = 2
SETTLED_SECONDS = 180.0
UNEXPECTED = ("http.failed", "lane.failed", "webhook.attempt_broke")
"""Log lines of exceptions that no code expects; no fault of the schedule causes one."""


def test_a_seed_repeats_its_schedule() -> None:
    faults = Faults(LONGEST_SECONDS, {KILL: ["hard"]})
    assert schedule(7, 60, faults) == schedule(7, 60, faults)
    assert schedule(7, 60, faults) != schedule(8, 60, faults)
    assert {step.fault for step in schedule(7, 0, faults)} == LONGEST_SECONDS.keys()


async def test_nothing_accepted_is_lost_or_doubled_by_a_schedule_of_faults() -> None:
    seed = int(os.environ.get("LTZD_TEST_SEED") or 0) or (
        time.time_ns() % 10**9 if SOAK_SECONDS else SHORT_SEED
    )
    print(f"seed {seed}, chain {CHAIN}")
    async with (
        a_soak_site(CHAIN) as site,
        perks_of(site.instance) as perks,
        site.nodes.blocks(),
    ):
        tokens = list(await asyncio.gather(*(perks.priced_token() for _ in range(TOKENS))))
        # A reorg may undo what is told of the newest blocks, and undoes no tokens.
        await site.nodes.rpc("anvil_mine", hex(BLOCKS_OF_A_REORG + 1))
        async with traffic_on_all_surfaces(site, perks, tokens, seed, CLIENTS) as traffic:
            for step in schedule(seed, SOAK_SECONDS, site.faults()):
                print(step.sentence(), flush=True)
                await site.disturb(step)
                await asyncio.sleep(step.rests)
        await _assert_settled(site, traffic)
    _print(site, traffic)


@pytest.mark.skipif(SOAK_SECONDS < LONG_SECONDS, reason="`make soak` measures for minutes")
async def test_processes_hold_no_more_after_minutes_of_traffic() -> None:
    """Two processes of `ltzd run`, since `ltzd dev` also keeps the data of the outside services."""
    async with a_cluster(ONE_OF_EACH) as cluster, relays_of(cluster.instance) as relays:
        users = await relays.all_welcomed(USERS)
        async with a_traffic(relays, users, CLIENTS, event_pause_seconds=0.1) as traffic:
            await asyncio.sleep(WARM_UP_SECONDS)
            before = [await footprint(cluster, member) for member in cluster.members]
            await asyncio.sleep(MEASURED_PART * SOAK_SECONDS)
            after = [await footprint(cluster, member) for member in cluster.members]
            accepted = len(traffic.events.accepted)
    for member, was, now in zip(cluster.members, before, after, strict=True):
        print(f"{member.name}, {accepted} events: {was} → {now}", flush=True)
        assert now.grown_beyond(was) == []


async def _assert_settled(site: SoakSite, traffic: Traffic) -> None:
    instance = site.instance
    assert traffic.refused == []
    lines = instance.printed_in_all_lives().splitlines()
    assert [line for line in lines if any(text in line for text in UNEXPECTED)] == []
    await site.nodes.recovered()
    site.nodes.answers += traffic.events.accepted
    await site.nodes.settle(SETTLED_SECONDS)
    for token in traffic.tokens:
        assert await traffic.perks.charges(token) == CHARGES - traffic.redeemed[token]
    payments = set(await instance.ask("SELECT array_agg(session_id) FROM payments") or [])
    assert set(traffic.paid) <= payments <= set(traffic.perhaps_paid)
    for wallet in traffic.checked_in:
        days = await instance.ask(
            "SELECT count(*) FROM check_ins WHERE wallet = decode($1, 'hex')", wallet[2:].lower()
        )
        assert days == 1, f"{wallet} checked in, {days} rows"
    done = await ltzd("books", "--data-dir", instance.data_dir)
    assert done.code == 0, done.out + done.err

    async def is_announced() -> bool:
        owed = await instance.ask("SELECT count(*) FROM webhooks WHERE state = 'pending'")
        return bool(owed == 0)

    await until(is_announced, SETTLED_SECONDS)
    await assert_announced(instance)


def _print(site: SoakSite, traffic: Traffic) -> None:
    by_surface: dict[str, Counter[int]] = {}
    for (surface, status), count in traffic.statuses.items():
        by_surface.setdefault(surface, Counter())[status] += count
    statuses = Counter(answer.status for answer in traffic.events.answers.values())
    print(f"events: {dict(statuses)}, {len(traffic.events.unknown)} without an answer")
    for surface, counts in sorted(by_surface.items()):
        print(f"{surface}: {dict(sorted(counts.items()))}")
    print(
        f"{len(site.nodes.asks)} relays, {traffic.redeemed.total()} charges, "
        f"{len(traffic.paid)} payments, {len(traffic.checked_in)} check-ins: all as answered"
    )
