"""A cluster on a replicated PostgreSQL and Redis: restarts, kills, freezes, promotions under load.

The short form has two processes of http and two of all other roles, and restarts one of each;
`make cluster` has three of http and two of each other role (LTZD_CLUSTER=full). The times of
takeovers are printed.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
import pytest_asyncio

from tests.support.cluster.cluster import FULL, SMALL, Cluster, Member, a_cluster
from tests.support.cluster.inbox import assert_announced
from tests.support.cluster.older_version import older_checkout
from tests.support.cluster.traffic import Traffic, a_traffic
from tests.support.folders import a_data_directory
from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.relayer import LTZ, Relays, relays_of
from tests.support.waiting import until

IS_FULL = os.environ.get("LTZD_CLUSTER") == "full"
CLIENTS, USERS = (8, 6) if IS_FULL else (4, 2)
MORE_EVENTS = 10 if IS_FULL else 2
READ_PAUSE_SECONDS, EVENT_PAUSE_SECONDS = (0.05, 0.1) if IS_FULL else (0.5, 0.5)
TAKEOVER_SECONDS = 10.0
"""A takeover takes at most 5 s; twice as long is allowed for a loaded machine."""
LEASES = {"operator": "lane/", "indexer": "indexer/", "deliveries": "chat_recheck"}
MINTED_SECONDS = 120.0
FROZEN_SECONDS = 10.0
HANGING_SECONDS = 1.0


@pytest_asyncio.fixture(scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    async with a_cluster(FULL if IS_FULL else SMALL) as cluster:
        yield cluster


@asynccontextmanager
async def under_load(cluster: Cluster) -> AsyncIterator[Traffic]:
    """Traffic during the block; afterwards nothing accepted is lost, and nothing is doubled."""
    async with relays_of(cluster.instance) as relays:
        users = await relays.all_welcomed(USERS)
        async with a_traffic(
            *(relays, users, CLIENTS),
            more_events=MORE_EVENTS,
            read_pause_seconds=READ_PAUSE_SECONDS,
            event_pause_seconds=EVENT_PAUSE_SECONDS,
        ) as traffic:
            await traffic.more()
            yield traffic
        await everything_is_done(cluster, relays, traffic)


async def everything_is_done(cluster: Cluster, relays: Relays, traffic: Traffic) -> None:
    instance = cluster.instance
    await all_minted(instance, MINTED_SECONDS)
    hashes = [ask.hash() for ask in traffic.asks]
    assert len(set(hashes)) == len(hashes)
    assert await relays.chain.balance(traffic.friend) == len(hashes) * LTZ, "a relay ran twice"

    async def all_delivered() -> bool:
        pending = "SELECT count(*) FROM webhooks WHERE state <> 'delivered'"
        return not await instance.ask(pending)

    await until(all_delivered, MINTED_SECONDS)
    webhooks, deliveries = await assert_announced(instance)
    await assert_books_agree(instance, traffic.events.accepted)
    accepted = len(traffic.events.accepted)
    with_hash = sum(answer.status == 200 for answer in traffic.events.accepted)
    print(
        f"{accepted} events, {with_hash} of them answered with their hash, {len(hashes)} relays,"
        f" {traffic.reads.total()} reads, {traffic.from_standby} of them by the standby"
    )
    print(f"{webhooks} webhooks so far, received by {deliveries} requests")


async def each_process_is_restarted(cluster: Cluster, traffic: Traffic) -> None:
    for member in cluster.members if IS_FULL else cluster.members[1:3]:
        await member.end()
        await traffic.more()
        await member.start()
        await traffic.more()
    assert traffic.refused() == []
    assert traffic.from_standby > 0


async def taken_over_from(cluster: Cluster, role: str, number: signal.Signals) -> Member:
    """Stops the process that serves the role, and waits until another one does."""
    holder = await cluster.holder(LEASES[role])
    holder.send(number)
    seconds = await cluster.taken_over(LEASES[role], holder.pid)
    print(f"{number.name} {holder.name}: taken over after {seconds:.1f} s")
    assert seconds < TAKEOVER_SECONDS
    return holder


async def each_part_dies(cluster: Cluster, traffic: Traffic) -> None:
    roles = tuple(LEASES) if IS_FULL else ("operator",)
    for member in cluster.with_role("http") if IS_FULL else cluster.members[:1]:
        await member.kill9()
        await traffic.more()
        await member.start()
    for role in roles:
        killed = await taken_over_from(cluster, role, signal.SIGKILL)
        await killed.ended()
        await traffic.more()
        await killed.start()
        frozen = await taken_over_from(cluster, role, signal.SIGSTOP)
        await traffic.more()
        frozen.send(signal.SIGCONT)
    if cluster.pooler is not None:
        await cluster.pooler.kill()
        await cluster.pooler.start()
        await traffic.more()
    await cluster.promote_redis()
    await traffic.more()
    await cluster.promote_postgres()
    await traffic.more()


async def a_frozen_http_process_holds_its_own_requests_alone(
    cluster: Cluster, traffic: Traffic
) -> None:
    """Readers beside the traffic: a few hang with the frozen process, the others are answered."""
    frozen, stop = cluster.with_role("http")[0], asyncio.Event()
    waits: list[float] = []
    started: dict[int, float] = {}
    instance = cluster.instance
    url = f"{instance.base_url}/service-api/events/{traffic.events.accepted[-1].event_id}"

    async def read(reader: int) -> None:
        while not stop.is_set():
            started[reader] = time.monotonic()
            async with instance.http.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
                assert answer.status == 200
                await answer.read()
            waits.append(time.monotonic() - started.pop(reader))
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        for reader in range(9):
            group.create_task(read(reader))
        await traffic.more()
        frozen.send(signal.SIGSTOP)
        waits.clear()
        try:
            await asyncio.sleep(FROZEN_SECONDS)
            answered = len(waits)
            at = time.monotonic()
            hanging = [since for since in started.values() if at - since > HANGING_SECONDS]
            await traffic.more()
        finally:
            frozen.send(signal.SIGCONT)
            stop.set()
    slow = sum(wait > HANGING_SECONDS for wait in waits[:answered])
    print(
        f"SIGSTOP {frozen.name} for {FROZEN_SECONDS:.0f} s: {answered} reads by 9 clients answered"
        f" meanwhile, {slow} of them after more than {HANGING_SECONDS:.0f} s; {len(hanging)}"
        " clients waited for the frozen process, and were answered when it woke up"
    )
    assert slow == 0
    assert len(hanging) < 9
    assert traffic.refused() == []


PHASES = {
    "restarts": [each_process_is_restarted],
    "a frozen http process": [a_frozen_http_process_holds_its_own_requests_alone],
    "deaths": [each_part_dies],
}
SHORT_PHASES = {"restarts and deaths": [each_process_is_restarted, each_part_dies]}


@pytest.mark.parametrize("phase", PHASES if IS_FULL else SHORT_PHASES)
async def test_nothing_accepted_is_lost_or_doubled(cluster: Cluster, phase: str) -> None:
    async with under_load(cluster) as traffic:
        for happens in (PHASES | SHORT_PHASES)[phase]:
            await happens(cluster, traffic)


@pytest.mark.skipif(not IS_FULL, reason="`make cluster` replaces an older version")
async def test_no_client_notices_that_each_process_is_replaced_by_this_version() -> None:
    """The schema first, then each process: an older one works on, and cannot start again."""
    async with a_data_directory() as folder:
        checkout = older_checkout(folder)
        async with a_cluster(FULL, checkout) as cluster, under_load(cluster) as traffic:
            instance = cluster.instance
            revision = "SELECT version_num FROM alembic_version"
            before = await instance.ask(revision)
            config = str(instance.folder / "http-0.toml")
            migrate = await instance.command(
                *("migrate", "--config", config), output=asyncio.subprocess.PIPE
            )
            _, errors = await asyncio.wait_for(migrate.communicate(), MINTED_SECONDS)
            assert migrate.returncode == 0, errors.decode()
            after = await instance.ask(revision)
            assert before < after
            await traffic.more()
            for number, member in enumerate(cluster.members):
                await member.end()
                await traffic.more()
                if number == 0:
                    assert "schema" in await member.refused()
                member.checkout = None
                await member.start()
                await traffic.more()
            assert traffic.refused() == []
            print(f"replaced 9 processes, the schema went from {before} to {after}")
