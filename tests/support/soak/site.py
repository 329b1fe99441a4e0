"""An installation on real services, each of which a soak can disturb."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import cast

import asyncpg

from ltzd.dev.services import postgres, processes
from ltzd.dev.services.chain import Kind
from tests.support.chain.chains import a_chain
from tests.support.chain.faulty_node import named
from tests.support.chain.faulty_node.node import FaultyNode, faulty_nodes
from tests.support.instances.instance import Instance, an_instance
from tests.support.instances.untrusted_nodes import UntrustedNodes
from tests.support.services.redis import RedisServer, a_redis_server
from tests.support.services.small_disk import Disk, a_disk
from tests.support.soak.schedule import FREEZE, KILL, LIE, NODE, Faults, Step

_DISK_MEBIBYTES = 1_024
_NODES = 3
"""A node that lies is outvoted by the other two."""
_ASK_SECONDS = 1.0
_DURABLE = {"fsync": "off", "max_wal_size": "128MB"}
"""Processes die and the machine does not, so what is written is durable without fsync."""

BLOCKS_OF_A_REORG = 2
_REORG = f"a reorg of {BLOCKS_OF_A_REORG} blocks"

LONGEST_SECONDS = {
    KILL: 0.0,
    FREEZE: 5.0,
    "all sessions of PostgreSQL end": 0.0,
    "PostgreSQL is killed and started again": 1.0,
    "PostgreSQL's disk is full": 2.0,
    "Redis is emptied": 0.0,
    "Redis hangs": 2.0,
    "Redis is killed and started again": 1.0,
    _REORG: 0.0,
    NODE: 2.0,
    LIE: 2.0,
}
TRUE_FAULTS = {**named.CONNECTION, **named.VIEWS}
LIES = {**named.LIES, **named.FORGERIES}


@dataclass
class SoakSite:
    nodes: UntrustedNodes
    database: Disk
    redis: RedisServer

    @property
    def instance(self) -> Instance:
        return self.nodes.instance

    def faults(self) -> Faults:
        """The faults that this machine allows."""
        longest = dict(LONGEST_SECONDS)
        if not self.database.is_own:
            del longest["PostgreSQL's disk is full"]
        return Faults(longest, {NODE: TRUE_FAULTS.keys(), LIE: LIES.keys()})

    async def disturb(self, step: Step) -> None:
        """Carries out one step, without its rest; afterwards all is healthy."""
        await _FAULTS[step.fault](self, step)
        assert self.instance.is_running, f"ltzd has ended:\n{self.instance.printed()[-3000:]}"

    async def start_database(self) -> None:
        """Starts PostgreSQL unless it runs and answers."""
        while not await self._database_answers():
            service = processes.find_running(self.database.folder, postgres.NAME)
            if service is None:
                await postgres.start(self.database.folder, _DURABLE)
            await asyncio.sleep(0.2)

    async def _database_answers(self) -> bool:
        try:
            async with asyncio.timeout(_ASK_SECONDS), self.instance.database() as connection:
                await connection.execute("CREATE TEMPORARY TABLE is_writable (number int)")
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        return True


async def _kill(site: SoakSite, step: Step) -> None:
    await site.nodes.kill_and_start()


async def _freeze(site: SoakSite, step: Step) -> None:
    process = site.instance.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(step.lasts)
    process.send_signal(signal.SIGCONT)


async def _end_sessions(site: SoakSite, step: Step) -> None:
    async with site.instance.database() as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def _kill_database(site: SoakSite, step: Step) -> None:
    service = processes.find_running(site.database.folder, postgres.NAME)
    assert service is not None
    os.kill(service.pid, signal.SIGKILL)
    await processes.ended_within(service, 10.0)
    await asyncio.sleep(step.lasts)
    await site.start_database()


async def _fill_disk(site: SoakSite, step: Step) -> None:
    site.database.fill()
    await asyncio.sleep(step.lasts)
    site.database.make_room()
    await site.start_database()


async def _empty_redis(site: SoakSite, step: Step) -> None:
    async with site.redis.client() as client:
        await client.flushall()


async def _hang_redis(site: SoakSite, step: Step) -> None:
    with site.redis.hanging():
        await asyncio.sleep(step.lasts)


async def _kill_redis(site: SoakSite, step: Step) -> None:
    await site.redis.kill()
    await asyncio.sleep(step.lasts)
    await site.redis.start()


async def _reorg(site: SoakSite, step: Step) -> None:
    await site.nodes.reorg(BLOCKS_OF_A_REORG)


async def _disturb_a_node(site: SoakSite, step: Step) -> None:
    await named.ALL[step.detail](site.nodes.nodes[0])
    await asyncio.sleep(step.lasts)
    await site.nodes.recover()


_FAULTS: Mapping[str, Callable[[SoakSite, Step], Awaitable[None]]] = {
    KILL: _kill,
    FREEZE: _freeze,
    "all sessions of PostgreSQL end": _end_sessions,
    "PostgreSQL is killed and started again": _kill_database,
    "PostgreSQL's disk is full": _fill_disk,
    "Redis is emptied": _empty_redis,
    "Redis hangs": _hang_redis,
    "Redis is killed and started again": _kill_redis,
    _REORG: _reorg,
    NODE: _disturb_a_node,
    LIE: _disturb_a_node,
}


@asynccontextmanager
async def a_soak_site(kind: str) -> AsyncIterator[SoakSite]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        disk = await enter(a_disk(_DISK_MEBIBYTES))
        server = await postgres.start(disk.folder, _DURABLE)
        redis = await enter(a_redis_server())
        chain = await enter(a_chain(cast("Kind", kind)))
        nodes: list[FaultyNode] = await enter(faulty_nodes(chain.rpc_url, _NODES))
        options = ("--database-url", server.url, "--redis-url", redis.url)
        instance = await enter(an_instance(*options, started=False))
        site = UntrustedNodes(cast("Kind", kind), nodes, instance, chain.rpc_url)
        await site.begin(stack, _NODES)
        yield SoakSite(site, disk, redis)
        with suppress(OSError):
            await site.recover()
