"""A cluster on a replicated PostgreSQL and Redis: restarts, kills, freezes, promotions under load.

The short form has two processes of http and two of all other roles, and restarts one of each;
`make cluster` has three of http and two of each other role (LTZD_CLUSTER=full). The times of
takeovers are printed.
"""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest_asyncio

from tests.support.cluster.cluster import FULL, SMALL, Cluster, Member, a_cluster
from tests.support.cluster.traffic import Traffic, a_traffic
from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.relayer import LTZ, Relays, relays_of
from tests.support.waiting import until

IS_FULL = os.environ.get("LTZD_CLUSTER") == "full"
CLIENTS, USERS = (8, 6) if IS_FULL else (3, 2)
TAKEOVER_SECONDS = 10.0
"""A takeover takes at most 5 s; twice as long is allowed for a loaded machine."""
LEASES = {"operator": "lane/", "indexer": "indexer/", "deliveries": "chat_recheck"}
MINTED_SECONDS = 120.0


@pytest_asyncio.fixture(scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    async with a_cluster(FULL if IS_FULL else SMALL) as cluster:
        yield cluster


@asynccontextmanager
async def under_load(cluster: Cluster) -> AsyncIterator[Traffic]:
    """Traffic during the block; afterwards nothing accepted is lost, and nothing is doubled."""
    async with relays_of(cluster.instance) as relays:
        users = await relays.all_welcomed(USERS)
        async with a_traffic(relays, users, CLIENTS) as traffic:
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
    await assert_books_agree(instance, traffic.events.accepted)
    accepted = len(traffic.events.accepted)
    print(f"{accepted} events, {len(hashes)} relays, {traffic.reads.total()} reads")


async def test_no_client_notices_that_each_process_is_restarted(cluster: Cluster) -> None:
    async with under_load(cluster) as traffic:
        for member in cluster.members if IS_FULL else cluster.members[1:3]:
            await member.end()
            await traffic.more()
            await member.start()
            await traffic.more()
        assert traffic.refused() == []


async def taken_over_from(cluster: Cluster, role: str, number: signal.Signals) -> Member:
    """Stops the process that serves the role, and waits until another one does."""
    holder = await cluster.holder(LEASES[role])
    holder.send(number)
    seconds = await cluster.taken_over(LEASES[role], holder.pid)
    print(f"{number.name} {holder.name}: taken over after {seconds:.1f} s")
    assert seconds < TAKEOVER_SECONDS
    return holder


async def test_nothing_accepted_is_lost_or_doubled_whatever_dies(cluster: Cluster) -> None:
    roles = tuple(LEASES) if IS_FULL else ("operator",)
    async with under_load(cluster) as traffic:
        for member in cluster.with_role("http"):
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
