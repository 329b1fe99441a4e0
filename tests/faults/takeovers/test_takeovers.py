"""A lane's process is killed, frozen or cut off: another one pays within seconds; nothing twice.

A `Process` has its own connections: what happens to them leaves the other processes alone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from copy import copy
from time import time

import asyncpg
import pytest
from msgspec.structs import replace

from ltzd.chain.node.node import Node
from ltzd.errors import LaneLost
from ltzd.indexer.follower import Follower
from ltzd.operator.mints.lane import MintLane
from ltzd.operator.policy import BY_HAND, LanePolicy, MintTarget
from ltzd.rules.conditions.facts import LaneState
from ltzd.store.database import Pool, open_pool, session
from ltzd.store.operator import wallets
from ltzd.store.operator.leases import Leases
from ltzd.store.role_pools import SESSION_SETTINGS
from ltzd.store.wakeups import REWARDS, WakeupHub
from tests.support.chain.fake_node import CHAIN_ID, CONTRACTS, LTZ_AT, FakeNode
from tests.support.chain.mint_world import FOLLOW, PAUSES, POLICY, World, true
from tests.support.rows.core import MINTER, follow, running, value
from tests.support.rows.processes import report_standby
from tests.support.services.silent_proxy import a_silent_proxy
from tests.support.waiting import Stopwatch, until

TAKEOVER_SECONDS = 10.0
"""A takeover takes at most 5 s; twice as long is allowed for a loaded machine."""
NEVER_STANDS_BY = replace(POLICY, pauses=replace(PAUSES, standby=3600.0))
WAITING = LaneState(MINTER.address, "mint", is_held=False)
LOOKS_OFTEN = replace(POLICY, pauses=replace(PAUSES, standby=3600.0, status=0.02))


class Process:
    def __init__(self, pool: Pool, lane: MintLane, wakeups: WakeupHub) -> None:
        self.pool = pool
        self.lane = lane
        self.wakeups = wakeups


@asynccontextmanager
async def a_process(
    world: World, url: str, node: Node | None = None, policy: LanePolicy = NEVER_STANDS_BY
) -> AsyncIterator[Process]:
    """A process with a mint lane. At the end of the block its connections are cut, not closed."""
    pool = await open_pool(url, name="ltzd operator", settings=SESSION_SETTINGS)
    wakeups = WakeupHub(url)
    lane = MintLane(
        pool,
        Leases(url),
        node or world.node.node,
        MINTER,
        MintTarget(CHAIN_ID, LTZ_AT),
        wakeups,
        policy,
    )
    try:
        async with running(lane.run(), wakeups.listen()):
            yield Process(pool, lane, wakeups)
    finally:
        pool.terminate()


async def serving(process: Process, seconds: float = 30.0) -> None:
    await until(lambda: true(process.lane.is_ready), seconds)


async def epoch(world: World) -> int:
    number: int = await value(world.observer, "SELECT max(epoch) FROM lanes")
    return number


@pytest.mark.usefixtures("stalls_count")
async def test_a_process_cut_off_from_the_database_is_replaced_though_it_still_reaches_the_node(
    world: World,
) -> None:
    world.node.mines_at_once = True
    async with (
        a_silent_proxy(world.url) as (network, through),
        a_process(world, through) as old,
    ):
        await serving(old)
        await world.queue(5)
        await world.minted()
        async with a_process(world, world.url) as new:
            await world.queue(5)
            network.swallow()
            watch = Stopwatch()
            await world.queue(5)
            await serving(new, 60.0)
            assert watch.seconds() < TAKEOVER_SECONDS
            assert not old.lane.is_serving, "two processes hold the lane"
            await world.minted()
            network.heal()
            await world.queue(5)
            await world.minted()
            assert new.lane.is_serving
        # The process whose network has recovered takes over again.
        await world.queue(5)
        await serving(old, 60.0)
        await world.minted()
    await world.each_minted_once()


async def test_a_term_begins_without_a_node_and_the_old_bytes_are_published_once_one_answers(
    world: World,
) -> None:
    world.node.lost_requests = 1_000_000
    await world.queue(3)
    async with world.serving():
        await world.settled("signed")
    stored, first_epoch = await world.stored_bytes(), await epoch(world)
    assert world.node.arrived == []
    world.node.is_down, world.node.lost_requests = True, 0

    async with a_process(world, world.url) as new:

        async def holds() -> bool:
            return bool(
                await value(world.observer, "SELECT count(*) FROM leases WHERE name ~ '^lane'")
            )

        async def says_why() -> bool:
            reason = await value(world.observer, "SELECT paused_for FROM lanes")
            return await epoch(world) == first_epoch + 1 and reason == "node"

        await until(holds)
        await until(says_why)
        assert not new.lane.is_serving
        await world.queue(3)
        assert await world.stored_bytes() == stored, "signed before the checks"
        world.node.is_down, world.node.mines_at_once = False, True
        await world.minted()
    assert world.node.arrived[0] == stored[0]
    await world.each_minted_once()


def cut_off_node(world: World) -> FakeNode:
    """The same chain, by a way of its own to it, which a test closes by `is_down`."""
    node = copy(world.node)
    node.node = Node(node)
    return node


@pytest.mark.parametrize("is_new_term", [False, True])
async def test_a_process_cut_off_from_its_nodes_leaves_the_wallet_to_one_that_has_a_node(
    world: World, is_new_term: bool
) -> None:
    world.node.mines_at_once = True
    way = cut_off_node(world)
    way.is_down = is_new_term
    if is_new_term:  # a lane that nobody has served needs a node for its first term
        async with a_process(world, world.url) as first:
            await serving(first)
    async with a_process(world, world.url, way.node) as old:

        async def waits_for_a_node() -> bool:
            reason = await value(world.observer, "SELECT paused_for FROM lanes")
            return reason == "node" and old.lane.pause.reason == "node"

        if not is_new_term:
            await serving(old)
            way.is_down = True
        await until(waits_for_a_node)
        async with a_process(world, world.url) as new:

            async def serves() -> bool:
                await report_standby(world.observer, WAITING)
                return new.lane.is_ready and not old.lane.is_serving

            await world.queue(5)
            await until(serves, 60.0)
            await world.minted()
    await world.each_minted_once()


async def test_a_wallet_that_a_person_has_paused_is_left_to_a_process_that_has_a_node_too(
    world: World,
) -> None:
    """Its mints wait for a node. The lane shows now this reason to sign nothing, now the other."""
    way = cut_off_node(world)
    await world.queue()
    async with a_process(world, world.url, way.node, LOOKS_OFTEN) as old:
        await world.settled("published")
        async with session(world.observer) as connection:
            await wallets.add(connection, CHAIN_ID, MINTER.address, "mint")
            await wallets.set_paused(connection, CHAIN_ID, MINTER.address, "night shift")
        await until(lambda: true(old.lane.pause.reason == BY_HAND))
        way.is_down = True
        async with a_process(world, world.url) as new:

            async def serves() -> bool:
                old.wakeups.notify(REWARDS)
                await report_standby(world.observer, WAITING)
                return new.lane.is_serving

            await until(serves, 60.0)
            world.node.mine()
            await world.settled("mined")
    await world.each_minted_once()


async def test_a_process_that_was_frozen_in_a_database_transaction_holds_up_nobody(
    world: World,
) -> None:
    """Its lock on the lane's row would keep the next term from beginning."""
    world.node.mines_at_once = True
    async with a_process(world, world.url) as old:
        await serving(old)
        await world.queue()
        await world.minted()
    application = {"application_name": "ltzd operator"}
    frozen = await asyncpg.connect(world.url, server_settings=application)
    try:
        await frozen.execute("BEGIN; SELECT FROM lanes FOR UPDATE; SELECT FROM rewards FOR UPDATE")
        watch = Stopwatch()
        async with a_process(world, world.url) as new:
            await world.queue()
            await serving(new, 60.0)
            assert watch.seconds() < TAKEOVER_SECONDS
            await world.minted()
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await frozen.execute("COMMIT")
    finally:
        frozen.terminate()
    await world.each_minted_once()


async def test_a_frozen_holder_that_wakes_up_writes_nothing(world: World) -> None:
    """The event loop stands still for longer than the lease lasts, as after SIGSTOP."""
    world.node.lost_requests = 1_000_000
    async with a_process(world, world.url) as old:
        await serving(old)
        await world.queue(3)
        await world.settled("signed")
        before = await epoch(world)
        async with session(world.observer) as connection:
            # Another process does this while this one is frozen.
            await connection.execute("UPDATE leases SET holder = gen_random_uuid()")
            await connection.execute("UPDATE lanes SET epoch = epoch + 1")
        world.node.lost_requests = 0
        await world.queue(3)

        async def has_lost_it() -> bool:
            return not old.lane.is_serving

        await until(has_lost_it)
        assert await value(world.observer, "SELECT count(*) FROM transactions") == 1
        assert await epoch(world) == before + 1
    assert all(len(contents) == 1 for contents in world.node.nonces().values())


async def test_an_indexer_cut_off_from_the_database_is_replaced(
    database_url: str, pool: Pool
) -> None:
    node = FakeNode()
    node.mine()
    chain = await follow(pool, node)

    async def has_read_all() -> bool:
        cursor = await value(pool, "SELECT cursor_hash FROM chains")
        return bool(cursor == node.head.hash)

    async with a_silent_proxy(database_url) as (network, through):
        cut_off = await open_pool(through, name="ltzd indexer", settings=SESSION_SETTINGS)
        old, new = (
            Follower(each, Leases(url), node.node, chain, CONTRACTS, WakeupHub(""), FOLLOW)
            for each, url in ((cut_off, through), (pool, database_url))
        )
        async with running(old.run()):
            await until(has_read_all)
            async with running(new.run()):
                network.swallow()
                node.mine(3)
                watch = Stopwatch()
                await until(has_read_all, 60.0)
                assert watch.seconds() < TAKEOVER_SECONDS
                network.heal()
                node.mine(3)
                await until(has_read_all)
                assert new.is_serving
        cut_off.terminate()


async def test_under_a_network_that_comes_and_goes_each_reward_is_minted_once(
    world: World,
) -> None:
    """Two processes lose the database again and again, at different times; both reach the node."""
    world.node.mines_at_once = True
    async with (
        a_silent_proxy(world.url) as (one_network, one_url),
        a_silent_proxy(world.url) as (other_network, other_url),
        a_process(world, one_url),
        a_process(world, other_url),
    ):
        for network in (one_network, other_network):
            await world.queue(20)
            network.swallow()
            await world.queue(20)
            await world.minted()
            network.heal()
    await world.each_minted_once()


async def test_ten_lanes_of_a_process_are_taken_over_together(world: World) -> None:
    """All leases of a process are on one connection, and one statement renews them."""
    async with a_silent_proxy(world.url) as (network, through):
        old, new = Leases(through), Leases(world.url)
        names = [f"lane/1/{number}" for number in range(10)]
        async with asyncio.TaskGroup() as group:
            holding = [group.create_task(_hold(old, name)) for name in names]
            await until(lambda: _held(world, 10))
            network.swallow()
            begun = time()
            taking = [group.create_task(_hold_once(new, name)) for name in names]
            watch = Stopwatch()
            async with asyncio.timeout(60.0):
                await asyncio.wait(taking)
            assert watch.seconds() < TAKEOVER_SECONDS
            assert time() - begun > 1.0, "taken before they had expired"
            await asyncio.wait(holding)
            network.heal()


async def _hold(leases: Leases, name: str) -> None:
    with suppress(LaneLost):
        async with leases.hold(name):
            await asyncio.Event().wait()


async def _hold_once(leases: Leases, name: str) -> None:
    async with leases.hold(name):
        pass


async def _held(world: World, count: int) -> bool:
    return bool(
        await value(
            world.observer, "SELECT count(*) = $1 FROM leases WHERE name ~ '^lane/1/'", count
        )
    )
