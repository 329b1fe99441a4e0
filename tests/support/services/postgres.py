"""One embedded PostgreSQL server for a whole test run, and a fresh database for each test.

A conftest makes them fixtures:

    @pytest_asyncio.fixture(scope="session")
    async def databases() -> AsyncIterator[Databases]:
        async with a_postgres(prepare=migrate) as databases:
            yield databases

    @pytest_asyncio.fixture
    async def database_url(databases: Databases) -> AsyncIterator[str]:
        async with databases.fresh() as url:
            yield url
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg

from ltzd.dev.services import postgres
from tests.support.folders import a_data_directory

_TEMPLATE = "prepared"
_FIRST_WITH_STRATEGIES = 15
"""PostgreSQL 14 copies databases by file, and knows no other way."""
_FIRST_WITH_CHEAP_LOGINS = 16


class Databases:
    """Makes and drops databases through one connection, which `close` ends."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._numbers = itertools.count(1)
        self._connection: asyncpg.Connection | None = None
        self._lock = asyncio.Lock()

    def url_of(self, database: str) -> str:
        return f"{self._server_url.rpartition('/')[0]}/{database}"

    async def fresh_database(self) -> str:
        """Returns the URL of a new copy of the prepared database."""
        name = f"test_{next(self._numbers)}"
        # Takes half the time of the default, which avoids a checkpoint.
        strategy = "STRATEGY FILE_COPY" if await self._major() >= _FIRST_WITH_STRATEGIES else ""
        await self._execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} {strategy}")
        return self.url_of(name)

    async def drop(self, url: str) -> None:
        """Drops the database even if clients are connected to it."""
        await self._execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[str]:
        url = await self.fresh_database()
        try:
            yield url
        finally:
            await self.drop(url)

    async def make_template(self, prepare: Callable[[str], Awaitable[None]]) -> None:
        await self._execute(f"CREATE DATABASE {_TEMPLATE}")
        await prepare(self.url_of(_TEMPLATE))

    async def make_logins_cheap(self) -> None:
        """Take the thousands of hash rounds out of each login, which tests make by thousands.

        Does nothing on a PostgreSQL that cannot.
        """
        if await self._major() < _FIRST_WITH_CHEAP_LOGINS:
            return
        password = urlsplit(self._server_url).password
        await self._execute("SET scram_iterations = 1")
        await self._execute(f"ALTER ROLE CURRENT_USER PASSWORD '{password}'")

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _execute(self, statement: str) -> None:
        async with self._lock:
            await (await self._connected()).execute(statement)

    async def _major(self) -> int:
        async with self._lock:
            major: int = (await self._connected()).get_server_version().major
            return major

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._server_url)
        return self._connection


@asynccontextmanager
async def a_postgres(
    prepare: Callable[[str], Awaitable[None]],
    settings: dict[str, str] | None = None,
) -> AsyncIterator[Databases]:
    """Runs a server for one test run; `prepare` migrates the database that is the others' template.

    The server survives no power failure, unless it has other `settings` ({} for dev mode's).
    `prepare` must leave no connection open: PostgreSQL copies only a database without clients.
    """
    async with a_data_directory() as folder:
        is_fast = settings is None
        server = await postgres.start(folder, postgres.UNSAFE_BUT_FAST if is_fast else settings)
        databases = Databases(server.url)
        try:
            if is_fast:
                await databases.make_logins_cheap()
            await databases.make_template(prepare)
            yield databases
        finally:
            await databases.close()
