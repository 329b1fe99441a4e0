"""`ltzd brand apply` as a person runs it: the whole program, a real database."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ltzd.rules.brands import parse_brand_file
from ltzd.store import brands, database
from ltzd.store.sealing import Sealer

EXAMPLE = Path(__file__).parents[2] / "config" / "brand.example.toml"
BRAND = """\
[brand]
id = "0x00000000000000000000000000000000000000aa"
name = "Demo"
domains = ["shop.example"]
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str


async def ltzd(*arguments: object) -> Outcome:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ltzd",
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), timeout=60)
    assert process.returncode is not None
    return Outcome(process.returncode, out.decode(), err.decode())


@pytest.fixture
def data_dir(tmp_path: Path, database_url: str) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    dev = {"adminUrl": "http://127.0.0.1:9464", "databaseUrl": database_url}
    (folder / "dev.json").write_text(json.dumps(dev))
    Sealer.from_file(folder / "master.key", create=True)
    return folder


def a_brand_file(folder: Path, text: str = BRAND) -> Path:
    path = folder / "demo.toml"
    path.write_text(text)
    return path


async def test_a_new_brand_prints_its_keys_once_and_then_its_changes(
    tmp_path: Path, data_dir: Path, database_url: str
) -> None:
    file = a_brand_file(tmp_path)

    first = await ltzd("brand", "apply", file, "--data-dir", data_dir)
    again = await ltzd("brand", "apply", file, "--data-dir", data_dir)
    a_brand_file(tmp_path, BRAND.replace("Demo", "New"))
    changed = await ltzd("brand", "apply", file, "--data-dir", data_dir)

    assert first.code == 0, first.err
    keys = json.loads(first.out)
    assert list(keys) == ["brandId", "securityKey", "apiKey", "webhookSecret", "verificationToken"]
    assert "+ brand 0x00000000000000000000000000000000000000aa: new" in first.err
    assert (again.code, again.out, again.err) == (0, "", "nothing changes\n")
    assert (changed.code, changed.out, changed.err) == (0, "", "~ name: Demo -> New\n")
    sealer = Sealer.from_file(data_dir / "master.key")
    connection = await database.connect(database_url, "test")
    try:
        brand = parse_brand_file(file.read_text(), "demo.toml")
        assert await brands.load(connection, brand.address) == brand
        stored = await brands.secret_of(connection, brand.address, "security_key", sealer)
        assert stored == keys["securityKey"]
    finally:
        await connection.close()


async def test_a_dry_run_shows_the_changes_and_makes_none(
    data_dir: Path, database_url: str
) -> None:
    outcome = await ltzd("brand", "apply", EXAMPLE, "--dry-run", "--data-dir", data_dir)

    assert outcome.code == 0, outcome.err
    assert "+ event purchase: reward_per_dollar 2, cooldown_hours 0" in outcome.out
    connection = await database.connect(database_url, "test")
    try:
        assert await brands.latest_revision(connection) == 0
    finally:
        await connection.close()


async def test_a_bad_file_is_refused_with_every_fault(tmp_path: Path) -> None:
    file = a_brand_file(tmp_path, BRAND + 'nam = 1\nautomation = "x"\n')

    outcome = await ltzd("brand", "apply", file, "--data-dir", tmp_path / "none")

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.splitlines() == [
        "ltzd: 2 faults:",
        f"  {file}:6: brand.automation: must be a valid boolean",
        f"  {file}:5: brand.nam: unknown key",
    ]


async def test_with_nothing_running_it_says_what_to_do(tmp_path: Path) -> None:
    outcome = await ltzd("brand", "apply", a_brand_file(tmp_path), "--data-dir", tmp_path / "none")

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        f"ltzd: No dev instance runs in {tmp_path / 'none'}: start `ltzd dev` there first, "
        "or name another place with --data-dir.\n"
    )


async def test_a_stopped_database_is_a_sentence(tmp_path: Path, data_dir: Path) -> None:
    dev = {"adminUrl": "http://127.0.0.1:1", "databaseUrl": "postgresql://u:hunter2@127.0.0.1:1/x"}
    (data_dir / "dev.json").write_text(json.dumps(dev))

    outcome = await ltzd("brand", "apply", a_brand_file(tmp_path), "--data-dir", data_dir)

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("ltzd: The database does not answer")
    assert "Traceback" not in outcome.err
    assert "hunter2" not in outcome.err


async def test_a_database_that_refuses_is_a_sentence(
    tmp_path: Path, data_dir: Path, database_url: str
) -> None:
    nowhere = database_url.rpartition("/")[0] + "/no_such_database"
    dev = {"adminUrl": "http://127.0.0.1:1", "databaseUrl": nowhere}
    (data_dir / "dev.json").write_text(json.dumps(dev))

    outcome = await ltzd("brand", "apply", a_brand_file(tmp_path), "--data-dir", data_dir)

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        "ltzd: The database refuses the connection (3D000); "
        "correct database_url: user, password, name.\n"
    )


async def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    outcome = await ltzd("brand", "apply", tmp_path / "none.toml")

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("ltzd: The brand file ")


async def test_a_settings_file_names_the_database_too(
    tmp_path: Path, data_dir: Path, database_url: str
) -> None:
    secret = data_dir / "master.key"
    config = tmp_path / "ltzd.toml"
    config.write_text(
        f"""
        database_url = "{database_url}"
        master_key_file = "{secret}"
        [node]
        rpc_url = "http://127.0.0.1:8545"
        [contracts]
        ltz = "0x5fbdb2315678afecb367f032d93f642f64180aa3"
        first_block = 0
        [operator]
        minter_key_file = "{secret}"
        [identity]
        base_url = "https://identity.example"
        app_id = "app"
        app_secret = "secret"
        """
    )

    migrated = await ltzd("migrate", "--config", config)
    applied = await ltzd("brand", "apply", a_brand_file(tmp_path), "--config", config)

    assert migrated.code == 0, migrated.err
    assert applied.code == 0, applied.err
    assert json.loads(applied.out)["brandId"].endswith("aa")


async def test_status_with_nothing_running_says_what_to_do(tmp_path: Path) -> None:
    outcome = await ltzd("status", "--data-dir", tmp_path / "none")
    elsewhere = await ltzd("status", "--admin-url", "http://127.0.0.1:1")

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"ltzd: No dev instance runs in {tmp_path / 'none'}")
    assert (elsewhere.code, elsewhere.out) == (1, "")
    assert elsewhere.err.startswith("ltzd: Nothing answers at http://127.0.0.1:1")


async def test_run_refuses_bad_settings_in_a_sentence(tmp_path: Path) -> None:
    outcome = await ltzd("run", "--config", tmp_path / "none.toml")

    assert outcome.code == 1
    assert outcome.err.startswith("ltzd: The settings file ")


async def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; import ltzd.cli.main; "
        "heavy = {'web3', 'sanic', 'pydantic', 'asyncpg', 'alembic', 'eth_abi', 'aiohttp'}; "
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)

    assert await process.wait() == 0
