"""docs/runbooks/rotation.md in practice: secrets change process by process, and requests pass.

The master key, the database's password and the admin token change in two rounds. In each round a
process with the new settings starts before the one with the former settings ends.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import asyncpg
import pytest
import pytest_asyncio

from ltzd.store.brands import configurations
from ltzd.store.database import connect
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.schema_revisions import migrate
from tests.support.chain.fake_node import FakeNode
from tests.support.commands import ltzd
from tests.support.instances.run_process import Deployment, Process
from tests.support.secret_files import write_secret
from tests.support.services.postgres import Databases, a_postgres
from tests.support.surfaces.event_action import a_brand
from tests.support.surfaces.event_surface import a_served_node
from tests.support.waiting import until

OLD_KEY, NEW_KEY = "ab" * 32, "cd" * 32


@pytest_asyncio.fixture(scope="session")
async def databases() -> AsyncIterator[Databases]:
    """A server that loses nothing in a power failure: `ltzd run` refuses another one."""
    async with a_postgres(prepare=migrate, settings={}) as databases:
        yield databases


class Clients:
    """Callers behind a load balancer: each request goes to any process that accepts it."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self.processes: list[Process] = []
        self.statuses: list[int] = []
        self._is_over = False

    def end(self) -> None:
        self._is_over = True

    async def run(self) -> None:
        while not self._is_over:
            if self.processes:
                self.statuses.append(await self._ask())
            await asyncio.sleep(0.01)

    async def _ask(self) -> int:
        """The route reads the database, which knows no such event."""
        for process in reversed(self.processes):
            path = "service-api/events/00000000-0000-0000-0000-000000000001"
            try:
                url = f"http://127.0.0.1:{process.port}/{path}"
                async with self._http.get(url, headers={"Connection": "close"}) as answer:
                    return answer.status
            except aiohttp.ClientConnectorError:
                continue
        return 0

    async def some_more(self) -> None:
        before = len(self.statuses)

        async def are_more() -> bool:
            return len(self.statuses) > before + 20

        await until(are_more)


class Rounds:
    """One process after the other; the former one ends once the next one answers."""

    def __init__(self, folder: Path, node_url: str, clients: Clients) -> None:
        self._folder = folder
        self._node_url = node_url
        self._clients = clients
        self._former: AsyncExitStack | None = None
        self.process: Process | None = None

    async def next(self, name: str, url: str, keys: tuple[str, ...], token: str) -> Deployment:
        folder = self._folder / name
        folder.mkdir()
        deployment = Deployment(folder, url, self._node_url)
        write_secret(folder / "master.key", "\n".join(keys))
        write_secret(folder / "token", token)
        stack = AsyncExitStack()
        admin = f'token_file = "{folder}/token"'
        self.process = await stack.enter_async_context(deployment.running("", admin))
        self._clients.processes.append(self.process)
        await self._clients.some_more()
        await self.end()
        self._former = stack
        await self._clients.some_more()
        return deployment

    async def end(self) -> None:
        if self._former is not None:
            await self._former.aclose()


@asynccontextmanager
async def asking() -> AsyncIterator[Clients]:
    async with aiohttp.ClientSession() as http:
        clients = Clients(http)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(clients.run())
            yield clients
            clients.end()


async def status_with(process: Process | None, token: str) -> int:
    assert process is not None
    url = f"http://127.0.0.1:{process.admin_port}/status"
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        return answer.status


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def test_keys_password_and_token_are_rotated_and_no_request_fails(
    tmp_path: Path, database_url: str
) -> None:
    old, both = (OLD_KEY,), (OLD_KEY, NEW_KEY)
    connection = await connect(database_url, "test")
    async with connection.transaction():
        sealer = Sealer([bytes.fromhex(OLD_KEY)])
        await configurations.apply(connection, a_brand(), sealer)
    await connection.close()
    login, _, place = database_url.rpartition("@")
    password = login.rpartition(":")[2]
    node = FakeNode()
    node.mine()
    async with a_served_node(node) as node_url, asking() as clients:
        rounds = Rounds(tmp_path, node_url, clients)
        await rounds.next("0", database_url, old, "first")
        assert await status_with(rounds.process, "first") == 200

        await execute(
            database_url,
            "CREATE ROLE ltzd_next LOGIN PASSWORD 'next' IN ROLE ltzd",
            "ALTER ROLE ltzd_next SET role TO ltzd",
        )
        await rounds.next("1", f"postgresql://ltzd_next:next@{place}", both, "second")
        assert await status_with(rounds.process, "first") == 401
        assert await status_with(rounds.process, "second") == 200
        await execute(database_url, "ALTER ROLE ltzd PASSWORD 'changed'")
        url = f"postgresql://ltzd:changed@{place}"
        deployment = await rounds.next("2", url, both[::-1], "second")
        config = next(deployment.folder.glob("*.toml"))
        key_file = write_secret(tmp_path / "new.key", NEW_KEY)
        resealed = await ltzd(
            *("wallets", "rotate-master-key", "--config", config, "--new-key-file", key_file)
        )
        assert resealed.code == 0, resealed.err
        assert "alone" in resealed.err

        with pytest.raises(asyncpg.InvalidPasswordError):
            await execute(database_url, "SELECT 1")
        await execute(url, "DROP ROLE ltzd_next")
        await clients.some_more()
        clients.end()
        await rounds.end()
        await execute(url, f"ALTER ROLE ltzd PASSWORD '{password}'")
    assert set(clients.statuses) == {404}
