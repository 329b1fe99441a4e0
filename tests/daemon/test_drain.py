"""A process of `ltzd run` that is told to end: readiness goes first, then the ports."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio

from ltzd.store import database, processes
from ltzd.store.schema_revisions import migrate
from tests.support.chain.fake_node import FakeNode
from tests.support.instances.run_process import Deployment
from tests.support.services.postgres import Databases, a_postgres
from tests.support.surfaces.event_surface import a_served_node
from tests.support.waiting import until


@pytest_asyncio.fixture(scope="session")
async def databases() -> AsyncIterator[Databases]:
    """A server that loses nothing in a power failure: `ltzd run` refuses another one."""
    async with a_postgres(prepare=migrate, settings={}) as databases:
        yield databases


async def test_readiness_ends_before_the_ports_and_the_row_goes_with_a_clean_end(
    tmp_path: Path, database_url: str
) -> None:
    node = FakeNode()
    node.mine()
    connection = await database.connect(database_url, "test")
    async with (
        a_served_node(node) as node_url,
        Deployment(tmp_path, database_url, node_url).running("drain_seconds = 300") as process,
        aiohttp.ClientSession() as client,
    ):
        admin_url = f"http://127.0.0.1:{process.admin_port}"
        public_url = f"http://127.0.0.1:{process.port}"

        async def ready(query: str) -> dict[str, Any]:
            async with client.get(f"{admin_url}/readyz{query}") as answer:
                body: dict[str, Any] = await answer.json()
                return body

        async def is_reported() -> bool:
            rows = await processes.list_all(connection)
            return [row.identity.pid for row in rows] == [process.process.pid]

        await until(is_reported)
        assert not any("is stopping" in reason for reason in (await ready(""))["reasons"])
        process.process.send_signal(signal.SIGTERM)

        async def drains() -> bool:
            reasons = (await ready("?role=http"))["reasons"]
            return any("is stopping" in reason for reason in reasons)

        await until(drains)
        async with client.get(f"{public_url}/service-api/debug") as answer:
            assert answer.status == 200
        process.process.send_signal(signal.SIGTERM)  # a second one does not wait any longer
        await process.process.wait()
    assert await processes.list_all(connection) == ()
    await connection.close()


async def test_a_second_signal_cuts_off_the_requests_that_the_first_one_waits_for(
    tmp_path: Path, database_url: str
) -> None:
    """The request reads a locked table, and would be answered once its read has timed out."""
    node = FakeNode()
    node.mine()
    owner = await database.connect(database_url, "test")
    async with (
        a_served_node(node) as node_url,
        Deployment(tmp_path, database_url, node_url).running("") as process,
        aiohttp.ClientSession() as client,
    ):
        url = f"http://127.0.0.1:{process.port}/service-api/events/{uuid4()}"

        async def answered() -> int:
            async with client.get(url) as answer:
                return answer.status

        async def waits_for_lock() -> bool:
            waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
            return await owner.fetchval(waiting) is True

        async with owner.transaction():
            await owner.execute("LOCK TABLE events")
            request = asyncio.create_task(answered())
            await until(waits_for_lock)
            process.process.send_signal(signal.SIGTERM)
            await process.logged("ltzd.stopping")
            process.process.send_signal(signal.SIGTERM)
            with pytest.raises(aiohttp.ClientConnectionError):
                await request
            await process.process.wait()
    await owner.close()
