"""Commands that change something tell programs what they did; `--config` finds the admin server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from ltzd import __version__
from ltzd.cli.admin_target import url_of
from ltzd.daemon.settings.settings import AdminSettings
from ltzd.http.loopback import is_loopback
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.conditions.facts import ProcessIdentity, ProcessReport
from ltzd.store import background_migrations, database, processes, schema_revisions
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer import chains
from ltzd.store.migrations import known_revisions, upgrades
from ltzd.store.operator.leases import indexer_lease
from tests.support.commands import a_data_directory_of, ltzd
from tests.support.secret_files import write_secret
from tests.support.services.dumps import restored
from tests.support.services.postgres import Databases

DUMP = Path(__file__).parents[2] / "store/upgrades/r0022.dump"
ID = "0x" + "aa" * 20
DEMO = Brand(id=ID, name="Demo", domains=("a.example",), webhook_url="https://a.example/hooks")
FILE = """
[brand]
id = "{id}"
name = "Demo"
domains = ["a.example"]
daily_mint_budget = 7
"""


@pytest_asyncio.fixture
async def _demo(db: Connection, data_dir: Path) -> None:
    await brands.apply(db, DEMO, Sealer.from_file(data_dir / "master.key"))


@pytest.mark.usefixtures("_demo")
async def test_a_brands_switches_and_keys(data_dir: Path) -> None:
    where = ("Demo", "--json", "--data-dir", data_dir)

    paused = (await ltzd("brand", "pause", *where)).json
    again = (await ltzd("brand", "pause", *where)).json
    resumed = (await ltzd("brand", "resume", *where)).json
    disabled = (await ltzd("brand", "disable", *where)).json
    key = (await ltzd("brand", "rotate-key", *where, "--key", "api_key")).json

    assert paused == {"brandId": ID, "name": "Demo", "state": "paused", "changed": True}
    assert again == paused | {"changed": False}
    assert resumed == paused | {"state": "active"}
    assert disabled == paused | {"state": "disabled"}
    assert key["brandId"] == ID
    assert key["previousValidUntil"] is not None
    assert key["previousLost"] is None


@pytest.mark.usefixtures("_demo")
async def test_a_brand_file(data_dir: Path, tmp_path: Path) -> None:
    file, new_file = tmp_path / "demo.toml", tmp_path / "new.toml"
    file.write_text(FILE.format(id=ID))
    new_file.write_text(FILE.format(id="0x" + "bb" * 20))
    where = ("--json", "--data-dir", data_dir)

    shown = (await ltzd("brand", "apply", file, "--dry-run", *where)).json
    applied = (await ltzd("brand", "apply", file, *where)).json
    same = (await ltzd("brand", "apply", file, *where)).json
    new = (await ltzd("brand", "apply", new_file, *where)).json

    assert any("daily_mint_budget" in line for line in shown["changes"])
    assert (shown["applied"], shown["keys"]) == (False, None)
    assert applied == shown | {"applied": True}
    assert same["changes"] == []
    assert "securityKey" in new["keys"]


@pytest.mark.usefixtures("_demo")
async def test_webhooks_and_the_master_key(data_dir: Path, db: Connection) -> None:
    where = ("--json", "--data-dir", data_dir)
    await db.execute(
        """
        INSERT INTO webhook_endpoints (brand_id, disabled_url, disabled_at, disabled_reason)
        VALUES ($1, $2, now(), 'failures')
        """,
        DEMO.address,
        DEMO.webhook_url,
    )
    since = ("--brand", "Demo", "--since", "2025-01-31")

    replayed = (await ltzd("webhooks", "replay", *since, *where)).json
    enabled = (await ltzd("webhooks", "enable", "Demo", *where)).json
    master_key = data_dir / "master.key"
    sealed = (await ltzd("wallets", "rotate-master-key", "--new-key-file", master_key, *where)).json

    assert replayed == {"due": 0}
    assert enabled == {"brandId": ID, "due": 0}
    assert sealed["keyId"] == Sealer.from_file(master_key).key_id
    assert sum(table["rows"] for table in sealed["tables"].values()) > 0


async def test_a_reward_that_did_not_fail_is_refused_with_json_too(data_dir: Path) -> None:
    refused = await ltzd("event", "retry", uuid4(), "--json", "--data-dir", data_dir)

    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("ltzd: There is no event")


@pytest_asyncio.fixture
async def empty_url(databases: Databases) -> AsyncIterator[str]:
    async with databases.fresh() as url:
        connection = await asyncpg.connect(url)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await connection.close()
        yield url


async def test_a_migration_is_shown_before_it_is_made(empty_url: str, tmp_path: Path) -> None:
    where = ("--data-dir", a_data_directory_of(tmp_path / "data", empty_url))
    known = known_revisions()

    whole = (await ltzd("migrate", "--dry-run", "--json", *where)).json
    assert (await schema_revisions.read_schema(empty_url)).revision is None, (
        "a dry run changes nothing"
    )
    await asyncio.to_thread(upgrades.upgrade, empty_url, "0024")
    shown = await ltzd("migrate", "--dry-run", *where)
    assert (await schema_revisions.read_schema(empty_url)).revision == "0024"
    made = (await ltzd("migrate", "--json", *where)).json
    nothing = await ltzd("migrate", "--dry-run", *where)

    assert (whole["revision"], whole["applied"]) == (None, False)
    assert [row["revision"] for row in whole["revisions"]] == known
    assert all(row["meaning"].endswith(".") for row in whole["revisions"])
    assert shown.code == 0
    assert [line[:4] for line in shown.out.splitlines()] == known[known.index("0025") :]
    assert "revision 0024, this version's is" in shown.err
    assert (made["revision"], made["newest"], made["applied"]) == (known[-1], known[-1], True)
    assert [row["revision"] for row in made["revisions"]] == known[known.index("0025") :]
    assert "nothing would change" in nothing.err


async def test_a_refused_upgrade_is_a_sentence(empty_url: str, tmp_path: Path) -> None:
    where = ("--data-dir", a_data_directory_of(tmp_path / "data", empty_url))
    connection = await asyncpg.connect(empty_url)
    await connection.execute("CREATE TABLE webhooks (mine int)")
    await connection.close()

    done = await ltzd("migrate", "--json", *where)

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("ltzd: The upgrade of the database")
    assert 'relation "webhooks" already exists (42P07). Correct the cause' in done.err
    assert len(done.err.splitlines()) == 1


async def test_the_steps_of_a_conversion_are_not_in_its_json(
    database_url: str, tmp_path: Path
) -> None:
    async with restored(database_url, DUMP, "of_r0022_for_json") as url:
        where = ("--data-dir", a_data_directory_of(tmp_path / "data", url))

        done = await ltzd("migrate", "--complete", "--json", *where)

    assert done.json["revision"] == known_revisions()[-1]
    assert done.json["unconvertedTables"] == []
    assert "partition-by-time events" in done.err


async def index_in_a_process(url: str, *versions: str) -> None:
    """A process with the last of the `versions` holds the indexer's lease.

    Processes of the others had its name before: a container keeps its host's name and its pid.
    Another container of the host has the same name, and serves HTTP with this version.
    """
    connection = await database.connect(url, "test")
    await schema_revisions.migrate(url)
    chain = await chains.identity(connection)
    assert chain is not None
    await connection.execute(
        """
        INSERT INTO leases (name, holder, process, pid, backend_start, taken_at, renewed_at,
                            expires_at)
        VALUES ($1, gen_random_uuid(), 'other/17', 17, now(), now(), now(), now() + '1 h'::interval)
        """,
        indexer_lease(chain.chain_id),
    )
    for role, version in [*(("indexer", each) for each in versions), ("http", __version__)]:
        process = ProcessIdentity(uuid4(), "other", 17, (role,), version)
        await processes.report(connection, process, ProcessReport())
    await connection.close()


@pytest.mark.parametrize(
    "versions",
    [("0.0.1",), (__version__,), (__version__, "0.0.1"), ("0.0.1", __version__)],
    ids=["other", "same", "rolled-back", "upgraded"],
)
async def test_nothing_is_converted_beside_an_indexer_of_another_version(
    versions: tuple[str, ...], database_url: str, tmp_path: Path
) -> None:
    async with restored(database_url, DUMP, "of_r0022_for_indexer") as url:
        await index_in_a_process(url, *versions)
        where = ("--data-dir", a_data_directory_of(tmp_path / "data", url))

        done = await ltzd("migrate", "--complete", *where)

        connection = await database.connect(url, "test")
        pending = await background_migrations.list_pending(connection)
        await connection.close()
    if versions[-1] == __version__:
        assert (done.code, pending) == (0, ())
    else:
        assert done.code == 1
        assert done.err.endswith(
            "The process other/17 indexes this database with another version of ltzd, which may "
            "not know the converted tables: stop it, or replace it by this version, and run the "
            "command again. The schema is upgraded, and no table was converted.\n"
        )
        assert {migration.step for migration in pending} == {None}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9464"),
        ("0.0.0.0", "http://127.0.0.1:9464"),
        ("::", "http://[::1]:9464"),
        ("::1", "http://[::1]:9464"),
    ],
)
def test_the_admin_server_of_settings_is_asked_on_this_machine(
    host: str, url: str, tmp_path: Path
) -> None:
    token = write_secret(tmp_path / "token", "hunter2\n")

    admin = AdminSettings(host=host, token_file=token, plain_http=not is_loopback(host))

    assert url_of(admin) == url
