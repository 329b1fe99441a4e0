"""A PostgreSQL that may lose commits that it has confirmed is refused, session by session."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.rules.database_connections import PoolPolicy
from ltzd.store import database, durability
from ltzd.store.database import session
from ltzd.store.durability import DurabilitySettings
from ltzd.store.role_pools import open_role_pools
from ltzd.store.schema_revisions import migrate
from tests.support.commands import ltzd_apart
from tests.support.secret_files import write_secret
from tests.support.services.postgres import Databases, a_postgres

SAFE = DurabilitySettings("on", "on", "on", has_standbys=False)
SETTINGS = """
database_url = "{url}"
master_key_file = "{folder}/master.key"
roles = ["indexer"]
[node]
rpc_url = "http://127.0.0.1:1"
[contracts]
ltz = "0x5fbdb2315678afecb367f032d93f642f64180aa3"
perk_nft = "0xe7f1725e7734ce288f8367e1bb143e90bb3f0512"
points_sale = "0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0"
business_escrow = "0xcf7ed3acca5a467e9e704c703e8d87f634fb0fc9"
first_block = 0
[identity]
kind = "oidc"
issuer = "https://login.invalid/"
audience = "ltzd"
"""


@pytest_asyncio.fixture(scope="session")
async def durable() -> AsyncIterator[Databases]:
    async with a_postgres(prepare=migrate, settings={}) as databases:
        yield databases


@pytest.mark.parametrize("commit", ["on", "remote_apply", "remote_write"])
def test_a_server_that_keeps_confirmed_commits_is_accepted(commit: str) -> None:
    assert durability.fault(replace(SAFE, synchronous_commit=commit)) is None
    assert durability.fault(replace(SAFE, synchronous_commit=commit, has_standbys=True)) is None


def test_a_local_commit_is_enough_without_synchronous_standbys() -> None:
    local = replace(SAFE, synchronous_commit="local")
    assert durability.fault(local) is None
    assert "a failover loses commits" in str(durability.fault(replace(local, has_standbys=True)))


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
def test_a_setting_that_loses_commits_is_refused_by_its_name(name: str) -> None:
    settings = DurabilitySettings(
        **{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"} | {name: "off"},
        has_standbys=False,
    )
    assert f"Set {name} = on" in str(durability.fault(settings))


@asynccontextmanager
async def changed(url: str, target: str) -> AsyncIterator[None]:
    """During the block new sessions of a role or a database have synchronous_commit = off."""
    connection = await database.connect(url, "test")
    try:
        await connection.execute(f"ALTER {target} SET synchronous_commit = off")
        yield
        await connection.execute(f"ALTER {target} RESET synchronous_commit")
    finally:
        await connection.close()


@pytest.mark.parametrize("what", ["DATABASE", "ROLE"])
async def test_a_session_that_was_weakened_for_its_role_or_database_is_not_used(
    durable: Databases, what: str
) -> None:
    async with durable.fresh() as url:
        name = url.rpartition("/")[2] if what == "DATABASE" else "ltzd"
        await durability.require_at_start(url)
        async with open_role_pools(url, ["indexer"], PoolPolicy(), must_be_durable=True) as pools:
            async with session(pools.indexer) as connection:
                assert await connection.fetchval("SELECT 1") == 1
            async with changed(url, f"{what} {name}"):
                with pytest.raises(Misconfigured, match="ALTER ROLE"):
                    await durability.require_at_start(url)
                with pytest.raises(DatabaseUnavailable, match="synchronous_commit = off"):
                    async with session(pools.deliveries):
                        pass
            async with session(pools.deliveries) as connection:
                assert await connection.fetchval("SELECT 1") == 1


async def test_ltzd_run_refuses_a_server_without_fsync_with_a_sentence(
    tmp_path: Path, database_url: str
) -> None:
    write_secret(tmp_path / "master.key", "ab" * 16 + "cd" * 16)
    text = SETTINGS.replace("{url}", database_url).replace("{folder}", str(tmp_path))
    done = await ltzd_apart("run", "--config", write_secret(tmp_path / "ltzd.toml", text))
    assert done.code == 1
    assert "PostgreSQL runs with fsync = off: " in done.err
    assert "Set fsync = on." in done.err
