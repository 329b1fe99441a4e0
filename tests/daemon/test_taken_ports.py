"""A start of `ltzd run` beside another program that listens on one of its ports."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ltzd.http.server import listen
from ltzd.store import schema_revisions
from tests.support.chain.fake_node import FakeNode
from tests.support.instances.run_process import Deployment
from tests.support.ports import free_port
from tests.support.services.postgres import Databases, a_postgres
from tests.support.surfaces.event_surface import a_served_node


async def _no_schema(_url: str) -> None:
    return None


@pytest_asyncio.fixture(scope="session")
async def databases() -> AsyncIterator[Databases]:
    """A server that loses nothing in a power failure, whose databases are empty."""
    async with a_postgres(prepare=_no_schema, settings={}) as databases:
        yield databases


@pytest.mark.parametrize("taken", ["port", "admin_port"])
async def test_a_start_whose_port_is_taken_leaves_the_schema_as_it_is(
    taken: str, tmp_path: Path, database_url: str
) -> None:
    """The schema may be that of a fleet which an earlier version still serves."""
    node = FakeNode()
    node.mine()
    with listen("127.0.0.1", 0) as listener:
        number = listener.getsockname()[1]
        ports = {"port": free_port(), "admin_port": free_port()} | {taken: number}
        async with a_served_node(node) as node_url:
            config = Deployment(tmp_path, database_url, node_url).settings("", "", **ports)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ltzd", "run", "--config", config),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await process.communicate()
    assert process.returncode != 0
    assert f"Port {number} on 127.0.0.1 cannot be used" in output.decode()
    assert (await schema_revisions.read_schema(database_url)).revision is None
